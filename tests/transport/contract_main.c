/* Runs the contract suite on transports, including those of modules.
 *
 * transport-contract [messages|ends|threads] [TRANSPORT...]
 *
 * TRANSPORT is a name as in COLLET_TRANSPORT (tcp, faulty:shm), or the file of a module, libcollet-transport-NAME.so,
 * which may have wrappers before it (faulty:./libcollet-transport-NAME.so). The default is the built-in transports, and
 * all parts. Rows that need what a transport does not have are left out, and a line says so. The exit status is 0 if
 * every promise is kept, 1 if not, 2 if a transport is not available, 77 if none has a device here. */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "contract.h"

enum { NAMES_MOST = 15 };

static const struct {
	const char *name;
	int (*run)(const struct subject *subjects);
} parts[] = {
	{ "messages", contract_messages },
	{ "ends", contract_ends },
	{ "threads", contract_threads },
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

/* "faulty:/folder/libcollet-transport-mine.so" -> "faulty:mine", with /folder searched first; other names stay. */
static const char *name_of(const char *argument, char *name, size_t bytes)
{
	static const char head[] = "libcollet-transport-";
	char folder[PATH_MAX], base[PATH_MAX], path[2 * PATH_MAX];
	const char *slash = strchr(argument, '/');
	if (!slash)
		return argument;
	while (slash > argument && slash[-1] != ':')
		slash--;
	snprintf(folder, sizeof(folder), "%s", slash);
	snprintf(base, sizeof(base), "%s", slash);
	const char *file = basename(base), *before = getenv("COLLET_TRANSPORT_PATH");
	const size_t length = strlen(file), around = sizeof(head) - 1 + strlen(".so");
	if (length <= around || strncmp(file, head, sizeof(head) - 1) != 0 || strcmp(file + length - 3, ".so") != 0) {
		fprintf(stderr, "transport-contract: %s is not named libcollet-transport-NAME.so\n", argument);
		exit(2);
	}
	snprintf(path, sizeof(path), "%s%s%s", dirname(folder), before ? ":" : "", before ? before : "");
	setenv("COLLET_TRANSPORT_PATH", path, 1);
	snprintf(name, bytes, "%.*s%.*s", (int)(slash - argument), argument, (int)(length - around),
		file + sizeof(head) - 1);
	return name;
}

/* Tries to open a transport. COLLET_ERR_UNSUPPORTED if it has no device. */
static collet_status probe(const char *name)
{
	struct collet_peer_info peer_info = { .pid = (uint32_t)getpid() };
	const struct collet_log log = { 0 };
	struct collet_wake wake = { .epoll_fd = epoll_create1(EPOLL_CLOEXEC), .event_fd = eventfd(0, EFD_CLOEXEC) };
	const struct collet_device_config config = {
		.services = &collet_transport_services, .log = &log, .self = &peer_info, .wake = &wake, .job_id = 1 };
	struct collet_transport_set set;
	const collet_status status = collet_transports_open(&set, name, &config, &peer_info);
	if (status == COLLET_OK) {
		const struct collet_transport_instance *instance = collet_transports_find(&set, name, NULL);
		printf("%s: %s%s%s\n", name, instance->transport->summary ? instance->transport->summary : "",
			instance->info.description[0] ? "; " : "", instance->info.description);
		collet_transports_close(&set, false);
	} else {
		fprintf(stderr, "transport-contract: %s\n", collet_last_error());
	}
	close(wake.epoll_fd);
	close(wake.event_fd);
	return status;
}

/* Asks each transport what it has, and says what it has not. */
static void ask_features(struct subject *subjects)
{
	static const struct {
		unsigned feature;
		const char *name;
	} features[] = {
		{ HAS_PEERS, "other ranks" },
		{ HAS_RECV_READY, "is_recv_ready()" },
		{ HAS_TRIES, "try_send()" },
		{ HAS_RETURNED_VIEWS, "views to send back" },
	};
	for (struct subject *subject = subjects; subject->name; subject++) {
		const char *before = "has no";
		subject->has = transport_features(subject->name);
		if (subject->has == HAS_ALL)
			continue;
		printf("%s ", subject->name);
		for (size_t f = 0; f < sizeof(features) / sizeof(features[0]); f++)
			if (!(subject->has & features[f].feature)) {
				printf("%s %s", before, features[f].name);
				before = ", no";
			}
		puts(": rows that need them are left out");
	}
}

/* Fills subjects with the available transports. Returns 0, or the exit status if there are none. */
static int choose(struct subject subjects[NAMES_MOST + 1], char **arguments, int count)
{
	static char own[NAMES_MOST][PATH_MAX];
	int chosen = 0;
	if (count > NAMES_MOST) {
		fprintf(stderr, "transport-contract: at most %d transports at a time\n", NAMES_MOST);
		return 2;
	}
	if (count == 0)
		for (; collet_transports[chosen]; chosen++)
			subjects[chosen].name = collet_transports[chosen]->name;
	for (int i = 0; i < count; i++) {
		const char *name = name_of(arguments[i], own[i], sizeof(own[i]));
		const collet_status status = probe(name);
		if (status != COLLET_OK && status != COLLET_ERR_UNSUPPORTED)
			return 2;
		if (status == COLLET_OK)
			subjects[chosen++].name = name;
	}
	subjects[chosen].name = NULL;
	ask_features(subjects);
	return chosen ? 0 : 77;
}

/* Chooses the seed of the faulty wrapper for the whole run. */
static void choose_seed(void)
{
	const char *given = getenv("COLLET_TEST_SEED");
	char drawn[24];
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(drawn, sizeof(drawn), "%u", (unsigned)(now.tv_nsec ^ now.tv_sec));
	setenv("COLLET_FAULTY_SEED", given ? given : drawn, 0);
	printf("COLLET_FAULTY_SEED=%s\n", getenv("COLLET_FAULTY_SEED"));
}

int main(int argc, char **argv)
{
	struct subject subjects[NAMES_MOST + 1] = { 0 };
	int first = 1, failed = 0, only = PARTS;
	setvbuf(stdout, NULL, _IOLBF, 0);
	choose_seed();
	if (argc > 1 && argv[1][0] == '-') {
		fputs("usage: transport-contract [messages|ends|threads] [NAME|[WRAPPER:]FILE.so]...\n", stderr);
		return 2;
	}
	for (int p = 0; p < PARTS && argc > 1; p++)
		if (strcmp(argv[1], parts[p].name) == 0)
			only = p;
	first += only < PARTS;
	const int refused = choose(subjects, argv + first, argc - first);
	if (refused)
		return refused;
	for (int p = 0; p < PARTS; p++)
		if (only == PARTS || only == p)
			failed += parts[p].run(subjects);
	return failed != 0;
}
