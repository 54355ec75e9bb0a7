/* Manages the file of the job secret. It is written under a temporary name and then linked into place. So if two
 * collet-runs make it at once (hosts that share a home folder), both read the same whole secret. */
#include "secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "say.h"

enum { SECRET_BYTES = 32, SECRET_FILE_BYTES_MAX = 4095 };

bool random_fill(uint8_t *bytes, size_t count)
{
	for (size_t filled = 0; filled < count;) {
		const ssize_t got = getrandom(bytes + filled, count - filled, 0);
		if (got > 0) {
			filled += (size_t)got;
		} else if (errno != EINTR) {
			say("the kernel gives no random bytes: %s", strerror(errno));
			return false;
		}
	}
	return true;
}

void hex_encode(char *text, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

bool secret_path(char *path, size_t bytes)
{
	const char *config = getenv("XDG_CONFIG_HOME");
	const char *home = getenv("HOME");
	int length = -1;
	/* The XDG specification has a relative folder ignored. */
	if (config != NULL && config[0] == '/')
		length = snprintf(path, bytes, "%s/collet/secret", config);
	else if (home != NULL && home[0] == '/')
		length = snprintf(path, bytes, "%s/.config/collet/secret", home);
	if (length < 0 || (size_t)length >= bytes) {
		say("neither XDG_CONFIG_HOME nor HOME names a folder to keep the secret in; set COLLET_SECRET_FILE");
		return false;
	}
	return true;
}

/* Makes the folders on the way to path, for this user only. */
static bool make_folders(const char *path)
{
	char folder[PATH_MAX];
	if (strlen(path) >= sizeof(folder)) {
		say("%s: the path is too long", path);
		return false;
	}
	strcpy(folder, path);
	for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
			say("%s: cannot make this folder: %s", folder, strerror(errno));
			return false;
		}
		*slash = '/';
	}
	return true;
}

static bool write_all(int fd, const char *text, size_t bytes)
{
	while (bytes > 0) {
		const ssize_t written = write(fd, text, bytes);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return false;
		text += written;
		bytes -= (size_t)written;
	}
	return true;
}

bool secret_make(const char *path, bool *made)
{
	*made = false;
	if (access(path, F_OK) == 0)
		return true;
	uint8_t secret[SECRET_BYTES];
	char text[2 * SECRET_BYTES + 2];
	if (!make_folders(path) || !random_fill(secret, sizeof(secret)))
		return false;
	hex_encode(text, secret, sizeof(secret));
	strcat(text, "\n");

	char draft[PATH_MAX];
	const int length = snprintf(draft, sizeof(draft), "%s.XXXXXX", path);
	if (length < 0 || (size_t)length >= sizeof(draft)) {
		say("%s: the path is too long", path);
		return false;
	}
	const int fd = mkostemp(draft, O_CLOEXEC); /* 0600 */
	if (fd < 0) {
		say("%s: cannot make this file: %s", draft, strerror(errno));
		return false;
	}
	const bool written = write_all(fd, text, strlen(text)) && fsync(fd) == 0;
	close(fd);
	/* link() refuses to replace, unlike rename(): the first secret made is the one that stays. */
	const bool linked = written && link(draft, path) == 0;
	const int error = errno;
	unlink(draft);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(text, sizeof(text));
	if (!linked && !(written && error == EEXIST)) {
		say("%s: cannot write the secret: %s", path, strerror(error));
		return false;
	}
	*made = linked;
	return true;
}

bool secret_check(const char *path)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT) {
		say("several hosts need one secret, and %s is not there: make it with 'collet-run --make-secret' on "
			"one host and copy it to the others (mode 0600), or set COLLET_SECRET or COLLET_SECRET_FILE on "
			"all of them",
			path);
		return false;
	}
	struct stat status;
	if (fd < 0 || fstat(fd, &status) != 0) {
		say("%s: cannot read the secret: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return false;
	}
	close(fd);
	if (!S_ISREG(status.st_mode))
		say("%s: the secret is not a regular file", path);
	else if (status.st_uid != geteuid() && status.st_uid != 0)
		say("%s: the secret belongs to user %u and you are user %u", path, status.st_uid, geteuid());
	else if ((status.st_mode & 077) != 0)
		say("%s: others may read the secret (mode %04o); make a new one, and keep it to yourself: chmod 600",
			path, status.st_mode & 07777);
	else if (status.st_size == 0 || status.st_size > SECRET_FILE_BYTES_MAX)
		say("%s: the secret has %lld bytes; expected 1 to %d", path, (long long)status.st_size,
			SECRET_FILE_BYTES_MAX);
	else
		return true;
	return false;
}
