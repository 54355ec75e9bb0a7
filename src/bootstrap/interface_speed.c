/* Reads link speeds by ioctl. /sys would not do: it may show interfaces of another network namespace than the
 * socket's. */
#include "bootstrap/interface_speed.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool query_ethtool(int fd, const char *name, void *question)
{
	struct ifreq request = { .ifr_data = question };
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	return ioctl(fd, SIOCETHTOOL, &request) == 0;
}

/* Does the same as ethtool_cmd_speed() of the kernel's header. That one shifts a signed 0xffff if the speed is
 * unknown. */
static uint32_t link_speed(const struct ethtool_cmd *link)
{
	return (uint32_t)link->speed_hi << 16 | link->speed;
}

static uint32_t interface_speed(const char *name)
{
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	struct ethtool_cmd link = { .cmd = ETHTOOL_GSET };
	uint32_t mbps = 0;
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	if (query_ethtool(fd, name, &driver) && query_ethtool(fd, name, &link))
		mbps = collet_driver_mbps(driver.driver, link_speed(&link));
	close(fd);
	return mbps;
}

static bool has_address(const struct ifaddrs *entry, const struct collet_address *address)
{
	if (!entry->ifa_addr || entry->ifa_addr->sa_family != address->any.sa_family)
		return false;
	if (address->any.sa_family == AF_INET) {
		struct sockaddr_in v4;
		memcpy(&v4, entry->ifa_addr, sizeof(v4));
		return v4.sin_addr.s_addr == address->v4.sin_addr.s_addr;
	}
	struct sockaddr_in6 v6;
	memcpy(&v6, entry->ifa_addr, sizeof(v6));
	return address->any.sa_family == AF_INET6 &&
	       memcmp(&v6.sin6_addr, &address->v6.sin6_addr, sizeof(v6.sin6_addr)) == 0;
}

uint32_t collet_interface_mbps(const struct collet_address *address)
{
	struct ifaddrs *all = NULL;
	uint32_t mbps = 0;
	if (getifaddrs(&all) < 0)
		return 0;
	for (const struct ifaddrs *i = all; i && !mbps; i = i->ifa_next)
		if (has_address(i, address))
			mbps = interface_speed(i->ifa_name);
	freeifaddrs(all);
	return mbps;
}

/* Ignores virtual interfaces. They report 10 Gb/s whatever carries them, or, of a bridge, its fastest port. */
uint32_t collet_driver_mbps(const char *driver, uint32_t mbps)
{
	static const char *const fictitious[] = { "veth", "tun", "bridge", "vmxnet3" };
	for (size_t i = 0; i < sizeof(fictitious) / sizeof(fictitious[0]); i++)
		if (strcmp(driver, fictitious[i]) == 0)
			return 0;
	return mbps == (uint32_t)SPEED_UNKNOWN ? 0 : mbps;
}
