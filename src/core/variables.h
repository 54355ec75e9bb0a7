/* Lists the environment variables of the library and its programs, so that a misspelt one can be told from a known one.
 */
#ifndef COLLET_CORE_VARIABLES_H
#define COLLET_CORE_VARIABLES_H

#include <stdbool.h>

/* The variables that collet(7) describes; ends with NULL. */
extern const char *const collet_variables[];

/* Returns true if collet, one of its programs, its scripts or its tests have a variable of this name. */
bool collet_variable_is_known(const char *name);
/* Returns the variable of collet(7) that a misspelt name was meant to be; NULL if none is close. name begins with
 * COLLET_. */
const char *collet_variable_closest(const char *name);

#endif
