/* The secret by which ranks on several hosts authenticate each other. */
#ifndef COLLET_LAUNCH_SECRET_H
#define COLLET_LAUNCH_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fills path with the default file: $XDG_CONFIG_HOME/collet/secret, else ~/.config/collet/secret. Returns false,
 * after printing why, if no home folder is known. */
bool secret_path(char *path, size_t bytes);

/* Makes the file (0600, in a folder of 0700) with a fresh random secret, unless it exists. *made tells which.
 * Returns false after printing the reason. */
bool secret_make(const char *path, bool *made);

/* Returns true if the file exists and only its owner (this user or root) can read it; else prints what to do. The
 * library checks again when it reads the file. Checking here fails once, before any rank starts. */
bool secret_check(const char *path);

/* Fills bytes from the kernel's random generator. Returns false after printing the reason. */
bool random_fill(uint8_t *bytes, size_t count);

/* Lower-case hexadecimal; text has room for 2 * count + 1. */
void hex_encode(char *text, const uint8_t *bytes, size_t count);

#endif
