/* Declares the stores that carry a text from rank 0 to the others. */
#ifndef COLLET_BOOTSTRAP_STORE_STORE_TEXT_H
#define COLLET_BOOTSTRAP_STORE_STORE_TEXT_H

#include "bootstrap/store/store.h"

collet_status collet_store_file_init(struct collet_store *store);
collet_status collet_store_callback_init(struct collet_store *store);

/* Writes addresses as text, and reads them. Return false if the text does not fit, or is not valid: half written, or of
 * another version. */
bool collet_root_addresses_write(const struct collet_root_addresses *addresses, char *text, size_t bytes);
bool collet_root_addresses_read(struct collet_root_addresses *addresses, const char *text);

#endif
