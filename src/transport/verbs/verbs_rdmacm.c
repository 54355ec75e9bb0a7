/* verbs: loads librdmacm at run time. See verbs_rdmacm.h. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_iwarp.h"
#include "verbs_rdmacm.h"

static bool resolve_all(struct verbs_rdmacm *rdmacm)
{
	const struct {
		const char *name;
		void *function; /* the member that receives its address */
	} rows[] = {
		{"rdma_create_event_channel", &rdmacm->create_event_channel},
		{"rdma_destroy_event_channel", &rdmacm->destroy_event_channel},
		{"rdma_create_id", &rdmacm->create_id},
		{"rdma_destroy_id", &rdmacm->destroy_id},
		{"rdma_bind_addr", &rdmacm->bind_addr},
		{"rdma_listen", &rdmacm->listen},
		{"rdma_resolve_addr", &rdmacm->resolve_addr},
		{"rdma_resolve_route", &rdmacm->resolve_route},
		{"rdma_set_option", &rdmacm->set_option},
		{"rdma_connect", &rdmacm->connect},
		{"rdma_accept", &rdmacm->accept},
		{"rdma_reject", &rdmacm->reject},
		{"rdma_get_cm_event", &rdmacm->get_cm_event},
		{"rdma_ack_cm_event", &rdmacm->ack_cm_event},
		{"rdma_event_str", &rdmacm->event_str},
	};
	enum { COUNT = sizeof(rows) / sizeof(rows[0]) };
	_Static_assert(sizeof(*rdmacm) == (1 + COUNT) * sizeof(void *), "every function is found");
	for (size_t i = 0; i < COUNT; i++) {
		void *found = dlsym(rdmacm->library, rows[i].name);
		if (!found)
			return false;
		memcpy(rows[i].function, &found, sizeof(found));
	}
	return true;
}

struct verbs_rdmacm *collet_verbs_load_rdmacm(void)
{
	struct verbs_rdmacm *rdmacm = calloc(1, sizeof(*rdmacm));
	if (!rdmacm)
		return NULL;
	/* Never unloaded: it opens every adapter once, and would lose track of that. */
	rdmacm->library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (rdmacm->library && resolve_all(rdmacm))
		return rdmacm;
	collet_verbs_unload_rdmacm(rdmacm);
	return NULL;
}

void collet_verbs_unload_rdmacm(struct verbs_rdmacm *rdmacm)
{
	if (rdmacm && rdmacm->library)
		dlclose(rdmacm->library);
	free(rdmacm);
}
