/* Injects failures that a test asks for, by a function's name or by number, and counts live objects of the driver. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 128 };

/* Numbers of calls, of every function that was called. */
static struct {
	const char *name;
	unsigned calls;
} counted[NAMES];

/* The failure set by fakeFail(). */
static struct {
	uint64_t nth, calls;         /* nth 0: none */
	cu_result code;
	bool onwards;
	const char *first;           /* the first function that failed */
} numbered;

static atomic_long alive;
static atomic_bool dead;
static _Thread_local bool spared;

/* Counts this call of the function. */
static unsigned count_call(const char *function)
{
	int i = 0;
	while (i < NAMES - 1 && counted[i].name && strcmp(counted[i].name, function) != 0)
		i++;
	counted[i].name = function;
	return ++counted[i].calls;
}

/* The failure that FAKE_CUDA_FAIL sets for the nth call of this function. *lasts: for every later call too. */
static cu_result named_failure(const char *function, unsigned nth, bool *lasts)
{
	const char *text = getenv("FAKE_CUDA_FAIL");
	const size_t length = strlen(function);
	unsigned which;
	int code;
	if (!text || strncmp(text, function, length) != 0)
		return CU_OK;
	if (sscanf(text + length, ":%u+:%d", &which, &code) == 2)
		return nth >= which ? code : CU_OK;
	*lasts = sscanf(text + length, ":%u!:%d", &which, &code) == 2 && which == nth;
	if (*lasts)
		return code;
	return sscanf(text + length, ":%u:%d", &which, &code) == 2 && (which == nth || !which) ? code : CU_OK;
}

/* How often a program polls, and enters a context to do so, depends on timing. Such calls have no numbers, and fail
 * only after others. */
static bool asks(const char *function)
{
	static const char *const names[] = { "cuEventQuery", "cuStreamQuery", "cuCtxPushCurrent", "cuCtxPopCurrent",
		"cuThreadExchangeStreamCaptureMode" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(function, names[i]) == 0)
			return true;
	return false;
}

cu_result fake_failure(const char *function)
{
	bool lasts = false;
	const cu_result named = named_failure(function, count_call(function), &lasts);
	if (spared)
		return named;
	if (lasts) {
		numbered.nth = ++numbered.calls;
		numbered.code = named;
		numbered.onwards = true;
	}
	const bool counts = !asks(function);
	numbered.calls += counts;
	if (!numbered.nth || numbered.calls < numbered.nth ||
		(!numbered.onwards && (!counts || numbered.calls > numbered.nth)))
		return named;
	if (!numbered.first)
		numbered.first = function;
	if (numbered.onwards)
		atomic_store(&dead, true);
	return numbered.code;
}

bool fake_is_dead(void)
{
	return atomic_load(&dead);
}

void fake_alive(int more)
{
	atomic_fetch_add(&alive, more);
}

FAKE_API void fakeFail(uint64_t nth, cu_result code, bool onwards)
{
	pthread_mutex_lock(&fake_lock);
	numbered.nth = nth;
	numbered.code = code;
	numbered.onwards = onwards;
	numbered.calls = 0;
	numbered.first = NULL;
	pthread_mutex_unlock(&fake_lock);
}

FAKE_API const char *fakeFailed(void)
{
	pthread_mutex_lock(&fake_lock);
	const char *first = numbered.first;
	pthread_mutex_unlock(&fake_lock);
	return first;
}

FAKE_API uint64_t fakeCalls(void)
{
	pthread_mutex_lock(&fake_lock);
	const uint64_t calls = numbered.calls;
	pthread_mutex_unlock(&fake_lock);
	return calls;
}

FAKE_API unsigned fakeCallsOf(const char *function)
{
	unsigned calls = 0;
	pthread_mutex_lock(&fake_lock);
	for (int i = 0; i < NAMES && counted[i].name; i++)
		if (strcmp(counted[i].name, function) == 0)
			calls = counted[i].calls;
	pthread_mutex_unlock(&fake_lock);
	return calls;
}

FAKE_API void fakeSpare(bool on)
{
	spared = on;
}

FAKE_API long fakeAlive(void)
{
	return atomic_load(&alive);
}
