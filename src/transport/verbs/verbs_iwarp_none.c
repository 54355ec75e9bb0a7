/* verbs, built without librdmacm's headers: no iWARP adapter is used, so nothing else than its address is asked for. */
#include "verbs_endpoint.h"

const char *collet_verbs_iwarp_address(struct collet_device *device, struct verbs_adapter *adapter)
{
	(void)device;
	(void)adapter;
	return "is iWARP, and this module was built without librdmacm";
}

static collet_status none(const struct verbs_conduit *verbs)
{
	return collet_verbs_refuse(verbs, "no iWARP", "this module was built without librdmacm");
}

collet_status collet_verbs_iwarp_await(struct verbs_conduit *verbs)
{
	return none(verbs);
}

collet_status collet_verbs_iwarp_connect(struct verbs_conduit *verbs)
{
	return none(verbs);
}

collet_status collet_verbs_iwarp_connecting(struct verbs_conduit *verbs)
{
	return none(verbs);
}

void collet_verbs_iwarp_hang_up(struct verbs_conduit *verbs)
{
	(void)verbs;
}

void collet_verbs_iwarp_leave_in_child(const struct verbs_conduit *verbs)
{
	(void)verbs;
}

void collet_verbs_unload_rdmacm(struct verbs_rdmacm *rdmacm)
{
	(void)rdmacm;
}
