/* Finds what a misspelt word was meant to be, for "did you mean". The library uses it too. */
#ifndef CLOSEST_NAME_H
#define CLOSEST_NAME_H

#include <stddef.h>

/* Returns the name that a word differs least from, without regard to case, "-" and "_"; NULL if none is close. Close
 * means one edit in a word of up to 4 letters, 2 up to 9, else 3. An edit replaces, adds or drops a letter, or swaps two
 * neighbours (optimal string alignment, after Damerau 1964). Of equally close names the first. Words of more than 63
 * letters are close to none. */
const char *collet_closest_name(const char *word, const char *const *names, size_t count);

#endif
