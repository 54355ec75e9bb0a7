/* verbs: iWARP without librdmacm's headers. Refuses every iWARP adapter, so the other functions are never reached. */
#include "verbs_iwarp.h"

const char *collet_verbs_iwarp_address(struct collet_device *device, struct verbs_adapter *adapter)
{
	(void)device;
	(void)adapter;
	return "is iWARP, and this module was built without librdmacm";
}

static collet_status fail_unsupported(const struct verbs_endpoint *verbs)
{
	return collet_verbs_fail_connect(verbs, "no iWARP", "this module was built without librdmacm");
}

collet_status collet_verbs_iwarp_listen(struct verbs_endpoint *verbs)
{
	return fail_unsupported(verbs);
}

collet_status collet_verbs_iwarp_connect(struct verbs_endpoint *verbs)
{
	return fail_unsupported(verbs);
}

collet_status collet_verbs_iwarp_connect_progress(struct verbs_endpoint *verbs)
{
	return fail_unsupported(verbs);
}

void collet_verbs_iwarp_disconnect(struct verbs_endpoint *verbs)
{
	(void)verbs;
}

void collet_verbs_iwarp_close_in_child(const struct verbs_endpoint *verbs)
{
	(void)verbs;
}

void collet_verbs_unload_rdmacm(struct verbs_rdmacm *rdmacm)
{
	(void)rdmacm;
}
