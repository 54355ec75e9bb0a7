/* Files of named arrays: what is written is read, by Python too; what is damaged, in whatever byte, is refused; and
 * whoever is killed while it writes leaves the file that was there. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "listen.h"
#include "skip.h"

static char folder[] = "/tmp/collet-tensors-XXXXXX", path[64], partial[80];

static int enter(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(partial, sizeof(partial), "%s.partial", path);
	return 0;
}

static int leave(void **state)
{
	unlink(path);
	unlink(partial);
	return rmdir(folder);
}

/* Reads the file; false: it was refused, and text says why. */
static bool reads(char *text, size_t capacity)
{
	struct tensor_file file;
	listen_begin();
	const bool read = safetensors_read(&file, path);
	listen_end(text, capacity);
	assert_true(read == (text[0] == '\0'));
	safetensors_deinit(&file);
	return read;
}

/* ---- Writing that is cut short ------------------------------------------------------------------------------- */

/* The linker hands the writer's calls to these. Each call is three moments: before, in the middle, after. */
static int moments_left = -1, failing_call = -1;

ssize_t __real_write(int fd, const void *bytes, size_t count);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
/* Visible: under AddressSanitizer its library's calls are wrapped with the rest. */
#define VISIBLE __attribute__((visibility("default")))
VISIBLE ssize_t __wrap_write(int fd, const void *bytes, size_t count);
VISIBLE int __wrap_fsync(int fd);
VISIBLE int __wrap_rename(const char *from, const char *to);

static void moment(void)
{
	if (moments_left >= 0 && moments_left-- == 0)
		raise(SIGKILL);
}

static bool fails(void)
{
	return failing_call >= 0 && failing_call-- == 0;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
	if (fd == STDERR_FILENO)
		return __real_write(fd, bytes, count);
	if (fails()) {
		errno = ENOSPC;
		return -1;
	}
	moment();
	const ssize_t half = __real_write(fd, bytes, (count + 1) / 2);
	moment();
	return half;
}

int __wrap_fsync(int fd)
{
	if (fails()) {
		errno = EIO;
		return -1;
	}
	moment();
	return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
	if (fails()) {
		errno = EACCES;
		return -1;
	}
	moment();
	const int result = __real_rename(from, to);
	moment();
	return result;
}

/* ---- Round trip ---------------------------------------------------------------------------------------------- */

static const float floats[6] = { 1, -2.5F, 3e-40F, 0x1.fffffep127F, -0.0F, 0.1F };
static const uint64_t numbers[2] = { 0, UINT64_MAX };
static const uint8_t bytes[3] = { 1, 2, 255 };
static const double one[1] = { 0.1 };

static const struct tensor tensors[] = {
	{ "bytes", COLLET_U8, 1, { 3 }, bytes },
	{ "layer.weight", COLLET_F32, 2, { 2, 3 }, floats },
	{ "empty", COLLET_F32, 2, { 0, 3 }, NULL },
	{ "a \"name\"\n", COLLET_U64, 1, { 2 }, numbers },
	{ "scalar", COLLET_F64, 0, { 0 }, one },
};
enum { TENSORS = sizeof(tensors) / sizeof(tensors[0]) };
static const struct tensor_note notes[] = { { "step", "12" }, { "words", "\xc3\xa4 \"\\\t" } };

static void write_all(const char *step)
{
	struct tensor_note now[] = { notes[0], notes[1] };
	now[0].text = step;
	assert_true(safetensors_write(path, tensors, TENSORS, now, 2));
}

static void what_is_written_is_read(void **state)
{
	struct tensor_file file;
	write_all("12");
	assert_int_equal(access(partial, F_OK), -1);
	assert_true(safetensors_read(&file, path));
	assert_true(file.checked);
	assert_int_equal(file.tensor_count, TENSORS);
	for (size_t t = 0; t < TENSORS; t++) {
		const struct tensor *tensor = safetensors_tensor(&file, tensors[t].name);
		assert_non_null(tensor);
		assert_int_equal(tensor->dtype, tensors[t].dtype);
		assert_int_equal(tensor->dimensions, tensors[t].dimensions);
		for (uint32_t d = 0; d < tensor->dimensions; d++)
			assert_int_equal(tensor->shape[d], tensors[t].shape[d]);
		const size_t count = (size_t)tensor_bytes(tensor);
		if (count > 0)
			assert_memory_equal(tensor->data, tensors[t].data, count);
		/* Aligned as its elements are, counted from the file's beginning. */
		const size_t at = (size_t)((const uint8_t *)tensor->data - file.bytes);
		assert_int_equal(at % collet_dtype_bytes(tensor->dtype), 0);
	}
	for (size_t n = 0; n < 2; n++)
		assert_string_equal(safetensors_note(&file, notes[n].name), notes[n].text);
	assert_null(safetensors_tensor(&file, "layer"));
	assert_null(safetensors_note(&file, "steps"));
	safetensors_deinit(&file);
}

/* With nothing but struct and json; and with safetensors itself where it is installed. */
static const char python[] =
	"import json, struct, sys\n"
	"raw = open(sys.argv[1], 'rb').read()\n"
	"length, = struct.unpack('<Q', raw[:8])\n"
	"header = json.loads(raw[8:8 + length])\n"
	"body = raw[8 + length:]\n"
	"assert (8 + length) % 8 == 0\n"
	"notes = header.pop('__metadata__')\n"
	"assert notes['step'] == '12' and notes['words'] == '\\u00e4 \"\\\\\\t', notes\n"
	"assert len(header) == 5, header\n"
	"def get(name, letter):\n"
	"    begin, end = header[name]['data_offsets']\n"
	"    return header[name]['shape'], struct.unpack('<%d%s' % ((end - begin) // struct.calcsize(letter), letter),"
	" body[begin:end])\n"
	"assert get('bytes', 'B') == ([3], (1, 2, 255))\n"
	"assert get('layer.weight', 'f')[1][:2] == (1, -2.5) and get('layer.weight', 'f')[0] == [2, 3]\n"
	"assert get('a \"name\"\\n', 'Q') == ([2], (0, 2 ** 64 - 1))\n"
	"assert get('scalar', 'd') == ([], (0.1,))\n"
	"assert get('empty', 'f') == ([0, 3], ())\n"
	"try:\n"
	"    from safetensors import safe_open\n"
	"except ImportError:\n"
	"    print('the package safetensors is not installed: opened without it')\n"
	"else:\n"
	"    with safe_open(sys.argv[1], framework='np') as file:\n"
	"        assert file.get_tensor('layer.weight').tolist()[0][:2] == [1, -2.5]\n"
	"        assert file.metadata()['step'] == '12'\n";

static void python_opens_it(void **state)
{
	if (system("python3 -c '' 2>/dev/null") != 0)
		skip_because("there is no python3");
	write_all("12");
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		execlp("python3", "python3", "-c", python, path, (char *)NULL);
		_exit(127);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* ---- Damage -------------------------------------------------------------------------------------------------- */

static void put_file(const uint8_t *content, size_t count)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(content, 1, count, file), count);
	assert_int_equal(fclose(file), 0);
}

static size_t get_file(uint8_t *content, size_t capacity)
{
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	const size_t count = fread(content, 1, capacity, file);
	assert_true(count < capacity);
	fclose(file);
	return count;
}

/* A flip in the few bytes that say there is a checksum leaves a file that has none, or none that says so: whoever wants
 * one refuses it then. */
static void no_flipped_byte_passes(void **state)
{
	uint8_t whole[2000], damaged[2000];
	char text[600];
	write_all("12");
	const size_t count = get_file(whole, sizeof(whole));
	for (size_t at = 0; at < count; at++) {
		for (unsigned flip = 1; flip < 256; flip = flip == 1 ? 0x20 : flip == 0x20 ? 0xff : 256) {
			memcpy(damaged, whole, count);
			damaged[at] ^= (uint8_t)flip;
			put_file(damaged, count);
			struct tensor_file file;
			listen_begin();
			const bool passed = safetensors_read(&file, path) && file.checked;
			listen_end(text, sizeof(text));
			safetensors_deinit(&file);
			if (passed)
				fail_msg("byte %zu may become %02x unseen", at, damaged[at]);
		}
	}
}

static void no_shorter_or_longer_file_passes(void **state)
{
	uint8_t whole[2000] = { 0 };
	char text[600];
	write_all("12");
	const size_t count = get_file(whole, sizeof(whole) - 9);
	for (size_t length = 0; length <= count + 9; length++) {
		put_file(whole, length);
		if (reads(text, sizeof(text)) != (length == count))
			fail_msg("%zu of %zu bytes: %s", length, count, text);
		assert_true(length == count || strstr(text, path));
	}
}

#define TWELVE "\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":"

static void what_makes_no_sense_is_refused_by_name(void **state)
{
	static const struct {
		const char *header;
		size_t body;
		const char *sentence;
	} rows[] = {
		{ "{}", 0, "" },
		{ "{\"a\":{" TWELVE "[0,12]}}", 12, "" },
		{ "  {\"a\":{" TWELVE "[0,12]}}  ", 12, "" },
		{ "", 0, "header is damaged at byte 8" },
		{ "[]", 0, "header is not a JSON object" },
		{ "{\"a\":{" TWELVE "[0,12]}", 12, "header is damaged at byte" },
		{ "{\"a\":{" TWELVE "[0,12]}}x", 12, "header is damaged at byte" },
		{ "{\"a\":{" TWELVE "[0,12]},\"a\":{" TWELVE "[0,12]}}", 12, "duplicate object key" },
		{ "{\"a\":{" TWELVE "[0,12]},\"b\":{" TWELVE "[8,20]}}", 20, "tensors a and b overlap at byte 8" },
		{ "{\"a\":{" TWELVE "[0,12]},\"b\":{" TWELVE "[0,12]}}", 12, "overlap at byte 0" },
		{ "{\"a\":{" TWELVE "[0,12]},\"b\":{" TWELVE "[16,28]}}", 28,
			"bytes 12 to 16 of the body belong to no tensor" },
		{ "{\"a\":{" TWELVE "[4,16]}}", 16, "bytes 0 to 4 of the body belong to no tensor" },
		{ "{\"a\":{" TWELVE "[0,12]}}", 13, "1 bytes at its end belong to no tensor" },
		{ "{\"a\":{" TWELVE "[0,12]}}", 11, "truncated: tensor a ends at byte 12 of the body, which has 11" },
		{ "{\"a\":{" TWELVE "[0,16]}}", 16, "tensor a: has 16 bytes" },
		{ "{\"a\":{" TWELVE "[12,0]}}", 12, "tensor a: its data_offsets" },
		{ "{\"a\":{" TWELVE "[-12,0]}}", 12, "tensor a: its data_offsets" },
		{ "{\"a\":{" TWELVE "[0,12.0]}}", 12, "tensor a: its data_offsets" },
		{ "{\"a\":{" TWELVE "[0]}}", 12, "tensor a: its data_offsets" },
		{ "{\"a\":{" TWELVE "\"0,12\"}}", 12, "tensor a: its data_offsets" },
		{ "{\"a\":{" TWELVE "[0,18446744073709551628]}}", 12, "header is damaged at byte" },
		{ "{\"a\":{\"dtype\":\"F31\",\"shape\":[3],\"data_offsets\":[0,12]}}", 12, "dtype (F31)" },
		{ "{\"a\":{\"shape\":[3],\"data_offsets\":[0,12]}}", 12, "dtype (missing)" },
		{ "{\"a\":7}", 0, "tensor a: its dtype (missing)" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[-3],\"data_offsets\":[0,12]}}", 12, "dimension 0 of its" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":3,\"data_offsets\":[0,12]}}", 12, "its shape is not a list" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,3],\"data_offsets\":[0,12]}}", 12,
			"its shape is not a list of up to 8" },
		/* 4 x 2^62 elements of 4 bytes are none, modulo 2^64. */
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
			"tensor a: has 0 bytes" },
		{ "{\"__metadata__\":[]}", 0, "__metadata__ is not an object" },
		{ "{\"__metadata__\":{\"step\":1}}", 0, "__metadata__: step is not a text" },
		{ "{\"__metadata__\":{\"crc32\":\"00000000\"}}", 0, "damaged: its checksum is" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t content[500] = { (uint8_t)strlen(rows[i].header) };
		char text[600];
		memcpy(content + 8, rows[i].header, strlen(rows[i].header));
		put_file(content, 8 + strlen(rows[i].header) + rows[i].body);
		const bool passed = reads(text, sizeof(text));
		if (passed != (rows[i].sentence[0] == '\0') || !strstr(text, rows[i].sentence))
			fail_msg("row %zu: %s", i, text);
	}
	uint8_t large[16] = { 0, 0, 0, 0, 0, 0, 0, 0x80 };
	char text[600];
	put_file(large, sizeof(large));
	assert_false(reads(text, sizeof(text)));
	assert_non_null(strstr(text, "no safetensors file"));
	memcpy(large, (const uint8_t[]){ 9, 0, 0, 0, 0, 0, 0, 0 }, 8);
	put_file(large, sizeof(large));
	assert_false(reads(text, sizeof(text)));
	assert_non_null(strstr(text, "truncated: its header has 9 bytes, and only 8"));
	unlink(path);
	assert_false(reads(text, sizeof(text)));
	assert_non_null(strstr(text, "No such file"));
}

/* ---- Writers that die, and disks that fail ------------------------------------------------------------------- */

static bool holds(const char *step)
{
	struct tensor_file file;
	assert_true(safetensors_read(&file, path));
	assert_true(file.checked);
	const bool same = strcmp(safetensors_note(&file, "step"), step) == 0;
	safetensors_deinit(&file);
	return same;
}

static void a_writer_that_is_killed_leaves_a_whole_file(void **state)
{
	int status = -1, cut = 0, old = 0;
	write_all("0");
	for (; status != 0; cut++) {
		char step[12];
		snprintf(step, sizeof(step), "%d", cut + 1);
		const pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			moments_left = cut;
			write_all(step);
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
		/* The new one after the rename; before it, the one that was there. */
		if (holds(step))
			continue;
		assert_int_not_equal(status, 0);
		assert_true(holds("0"));
		old++;
	}
	/* Header and four arrays, each in several writes; fsync, rename, and the folder's fsync. */
	assert_true(cut > 20 && old > 15 && old < cut - 2);
	/* What the dead have left does not stand in the way. */
	write_all("whole");
	assert_true(holds("whole"));
	assert_int_equal(access(partial, F_OK), -1);
}

static void a_full_disk_leaves_the_file_that_was_there(void **state)
{
	static const char *const reasons[] = { "No space left on device", "Input/output error", "Permission denied" };
	int seen[3] = { 0 };
	bool written = false;
	write_all("before");
	for (int call = 0; !written; call++) {
		char text[600];
		failing_call = call;
		listen_begin();
		written = safetensors_write(path, tensors, TENSORS, NULL, 0);
		listen_end(text, sizeof(text));
		failing_call = -1;
		bool told = written;
		for (int r = 0; r < 3; r++) {
			seen[r] += strstr(text, reasons[r]) != NULL;
			told = told || strstr(text, reasons[r]);
		}
		assert_true(told);
		/* The last call is the folder's: the file is the new one by then. */
		assert_int_equal(access(partial, F_OK), -1);
		struct tensor_file file;
		assert_true(safetensors_read(&file, path));
		assert_true(written || seen[2] || safetensors_note(&file, "step"));
		safetensors_deinit(&file);
	}
	assert_true(seen[0] > 5 && seen[1] == 2 && seen[2] == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(python_opens_it),
		cmocka_unit_test(no_flipped_byte_passes),
		cmocka_unit_test(no_shorter_or_longer_file_passes),
		cmocka_unit_test(what_makes_no_sense_is_refused_by_name),
		cmocka_unit_test(a_writer_that_is_killed_leaves_a_whole_file),
		cmocka_unit_test(a_full_disk_leaves_the_file_that_was_there),
	};
	return cmocka_run_group_tests(tests, enter, leave);
}
