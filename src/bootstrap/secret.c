#include "bootstrap/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bootstrap/crypto.h"
#include "core/config.h"
#include "core/status.h"

enum { SECRET_TEXT_BYTES = 4096 };

/* Writes "$XDG_CONFIG_HOME/collet/secret", or the same below "$HOME/.config". Returns false if neither is set. */
static bool default_path(char *path, size_t bytes)
{
	const char *config = collet_env("XDG_CONFIG_HOME"), *home = collet_env("HOME");
	int length = -1;
	if (config)
		length = snprintf(path, bytes, "%s/collet/secret", config);
	else if (home)
		length = snprintf(path, bytes, "%s/.config/collet/secret", home);
	return length > 0 && (size_t)length < bytes;
}

/* Derives a key of fixed length from the text. The text itself is never compared or sent. */
static collet_status derive(struct collet_launch *launch, const char *text, size_t bytes)
{
	static const char label[] = "collet job secret";
	collet_status status = collet_mac(launch->secret, label, sizeof(label), text, bytes);
	if (!status)
		launch->secret_bytes = COLLET_MAC_BYTES;
	return status;
}

static collet_status read_file(struct collet_launch *launch, const char *path, bool must_exist)
{
	char text[SECRET_TEXT_BYTES];
	struct stat info;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && !must_exist && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
		return COLLET_OK;
	if (fd < 0)
		return collet_fail(COLLET_ERR_CONFIG, "cannot read the secret file %s: %s", path, strerror(errno));
	/* fstat() checks the file that was opened; its name may mean another file by now. */
	if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || (info.st_mode & 077) != 0 ||
	    (info.st_uid != geteuid() && info.st_uid != 0)) {
		close(fd);
		return collet_fail(COLLET_ERR_CONFIG,
			"the secret file %s must be a file that is yours and nobody else can read: "
			"chmod 600 %s",
			path, path);
	}
	ssize_t got = read(fd, text, sizeof(text));
	close(fd);
	if (got < 0)
		return collet_fail(COLLET_ERR_CONFIG, "cannot read the secret file %s: %s", path, strerror(errno));
	size_t bytes = (size_t)got;
	while (bytes && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
		bytes--;
	if (bytes == 0 || bytes == sizeof(text))
		return collet_fail(
			COLLET_ERR_CONFIG, "the secret file %s must hold 1 to %d bytes", path, SECRET_TEXT_BYTES - 1);
	collet_status status = derive(launch, text, bytes);
	collet_wipe(text, sizeof(text));
	return status;
}

collet_status collet_secret_make(struct collet_launch *launch, char text[COLLET_MADE_SECRET_BYTES])
{
	uint8_t bytes[(COLLET_MADE_SECRET_BYTES - 1) / 2];
	const collet_status status = collet_random(bytes, sizeof(bytes));
	if (status != COLLET_OK)
		return status;
	collet_hex(text, bytes, sizeof(bytes));
	collet_wipe(bytes, sizeof(bytes));
	return collet_secret_use(launch, text);
}

collet_status collet_secret_use(struct collet_launch *launch, const char *text)
{
	return derive(launch, text, strlen(text));
}

collet_status collet_secret_read(struct collet_launch *launch, const collet_options *options)
{
	char path[512];
	const char *text =
		options && options->secret && *options->secret ? options->secret : collet_env("COLLET_SECRET");
	if (text)
		return collet_secret_use(launch, text);
	const char *file = collet_env("COLLET_SECRET_FILE");
	if (file)
		return read_file(launch, file, true);
	return default_path(path, sizeof(path)) ? read_file(launch, path, false) : COLLET_OK;
}

collet_status collet_fail_no_secret(const char *why)
{
	char path[512];
	return collet_fail(COLLET_ERR_CONFIG,
		"%s: a secret is needed, so that nobody else gets in. Set COLLET_SECRET to the same "
		"text on all ranks, or COLLET_SECRET_FILE to a file that holds it (mode 0600; %s by default), or start "
		"the ranks with "
		"collet-run, which makes one",
		why, default_path(path, sizeof(path)) ? path : "~/.config/collet/secret");
}
