/* The secret that ranks on several hosts prove to each other that they belong together with. */
#ifndef COLLET_LAUNCH_SECRET_H
#define COLLET_LAUNCH_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where it is kept unless COLLET_SECRET_FILE says otherwise: $XDG_CONFIG_HOME/collet/secret, else
 * ~/.config/collet/secret. False (said why): no home folder is known. */
bool secret_path(char *path, size_t bytes);

/* Makes the file, 0600 in a folder of 0700, with a fresh random secret; an existing one is left as it is. *made says
 * which. False: said why. */
bool secret_make(const char *path, bool *made);

/* Is there a file that only its owner, this user or root, can read? False: said what is wrong and what to do. The
 * library looks again when it reads it; asking here too fails once and before anything is started, not once a rank. */
bool secret_check(const char *path);

/* Fills bytes from the kernel's random generator. False: said why. */
bool random_fill(uint8_t *bytes, size_t count);

/* Lower-case hexadecimal; text has room for 2 * count + 1. */
void hex_encode(char *text, const uint8_t *bytes, size_t count);

#endif
