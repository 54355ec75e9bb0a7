/* Converts elements of every dtype to numbers and back, as a plain program would read and round them. */
#ifndef COLLET_TESTS_API_VALUES_H
#define COLLET_TESTS_API_VALUES_H

#include <collet/collet.h>

bool value_is_float(collet_dtype dtype);
bool value_is_signed(collet_dtype dtype);
uint64_t value_load(collet_dtype dtype, const void *from);
void value_store(collet_dtype dtype, uint64_t bits, void *into);
/* Decodes a float dtype's bits, and encodes a finite number as the nearest float (ties to even). */
double value_decode(collet_dtype dtype, uint64_t bits);
uint64_t value_encode(collet_dtype dtype, double number);

#endif
