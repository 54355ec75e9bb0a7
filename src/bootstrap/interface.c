#include "bootstrap/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/config.h"
#include "core/status.h"

/* One item of the list. */
struct item {
	char text[80];
	int family;            /* AF_UNSPEC: a name */
	uint8_t network[16];
	uint32_t prefix_bits;
};

static bool parse_network(struct item *item)
{
	char address[80];
	const char *slash = strchr(item->text, '/');
	uint64_t bits;
	snprintf(address, sizeof(address), "%.*s", (int)(slash - item->text), item->text);
	if (inet_pton(AF_INET, address, item->network) == 1)
		item->family = AF_INET;
	else if (inet_pton(AF_INET6, address, item->network) == 1)
		item->family = AF_INET6;
	else
		return false;
	if (!collet_parse_u64(slash + 1, item->family == AF_INET ? 32 : 128, &bits))
		return false;
	item->prefix_bits = (uint32_t)bits;
	return true;
}

/* Removes the next item from *text, which is behind any '^'. Returns false if none is left. */
static bool next_item(const char **text, struct item *item)
{
	*text += strspn(*text, ", ");
	size_t length = strcspn(*text, ", ");
	if (!length)
		return false;
	memset(item, 0, sizeof(*item));
	snprintf(item->text, sizeof(item->text), "%.*s", (int)(length < 79 ? length : 79), *text);
	*text += length;
	return true;
}

static const void *bytes_of(const struct collet_address *address)
{
	return address->any.sa_family == AF_INET ? (const void *)&address->v4.sin_addr : &address->v6.sin6_addr;
}

static bool item_matches(struct item *item, const char *name, const struct collet_address *address)
{
	if (!strchr(item->text, '/'))
		return strcmp(item->text, name) == 0;
	if (!parse_network(item) || item->family != address->any.sa_family)
		return false;
	const uint8_t *bytes = bytes_of(address);
	for (uint32_t bit = 0; bit < item->prefix_bits; bit++)
		if ((bytes[bit / 8] ^ item->network[bit / 8]) >> (7 - bit % 8) & 1)
			return false;
	return true;
}

/* Returns the position of this interface or address in the list, or -1 if it is not allowed. */
static int position_in_list(const char *text, const char *name, const struct collet_address *address)
{
	if (!*text)
		return 0;
	const bool exclude = *text == '^';
	const char *at = text + exclude;
	struct item item;
	for (int position = 0; next_item(&at, &item); position++)
		if (item_matches(&item, name, address))
			return exclude ? -1 : position;
	return exclude ? 0 : -1;
}

collet_status collet_interface_check(const char *text)
{
	if (!text || !*text)
		return COLLET_OK;
	const char *at = text + (*text == '^');
	struct item item;
	uint32_t count = 0;
	for (; next_item(&at, &item); count++)
		if (strchr(item.text, '^') || (strchr(item.text, '/') && !parse_network(&item)))
			return collet_fail(COLLET_ERR_CONFIG,
				"interface '%s': '%s' is neither a name nor a network such as 10.0.0.0/8 "
				"(COLLET_INTERFACE; ^ in front excludes all that follow)",
				text, item.text);
	return count ? COLLET_OK : collet_fail(COLLET_ERR_CONFIG, "interface '%s' names none (COLLET_INTERFACE)", text);
}

static bool to_address(const struct ifaddrs *entry, struct collet_address *address)
{
	if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP))
		return false;
	if (entry->ifa_addr->sa_family == AF_INET) {
		struct sockaddr_in v4;
		memcpy(&v4, entry->ifa_addr, sizeof(v4));
		return collet_address_ip(address, AF_INET, &v4.sin_addr, 0, 0);
	}
	if (entry->ifa_addr->sa_family == AF_INET6) {
		struct sockaddr_in6 v6;
		memcpy(&v6, entry->ifa_addr, sizeof(v6));
		return collet_address_ip(address, AF_INET6, &v6.sin6_addr, v6.sin6_scope_id, 0);
	}
	return false;
}

static bool is_link_local(const struct collet_address *address)
{
	return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address->v6.sin6_addr);
}

/* Ranks a candidate; lower is better. The list's order counts first, then real interfaces before loopback, addresses
 * without a scope, and IPv4. */
static int cost_of(int position, const struct collet_address *address)
{
	return position * 8 + (collet_address_is_loopback(address) ? 4 : 0) + (is_link_local(address) ? 2 : 0) +
		(address->any.sa_family == AF_INET6 ? 1 : 0);
}

/* Finds the source address of packets to toward. */
static bool route_source(const struct collet_address *toward, struct collet_address *address)
{
	int fd = socket(toward->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	struct collet_address to = *toward;
	if (collet_address_port(&to) == 0)
		collet_address_set_port(&to, 9);   /* any port: connecting a datagram socket sends nothing */
	memset(address, 0, sizeof(*address));
	address->bytes = sizeof(address->v6);
	bool ok = connect(fd, &to.any, to.bytes) == 0 && getsockname(fd, &address->any, &address->bytes) == 0;
	close(fd);
	if (ok)
		collet_address_set_port(address, 0);
	return ok;
}

static bool same_address(const struct collet_address *a, const struct collet_address *b)
{
	return a->any.sa_family == b->any.sa_family &&
		memcmp(bytes_of(a), bytes_of(b), a->any.sa_family == AF_INET ? 4 : 16) == 0;
}

static collet_status fail_no_match(const char *text, const struct ifaddrs *all)
{
	char list[400] = "", one[COLLET_ADDRESS_TEXT_BYTES];
	size_t used = 0;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		struct collet_address address;
		if (!to_address(i, &address))
			continue;
		int more = snprintf(list + used, sizeof(list) - used, "%s%s %s", used ? ", " : "", i->ifa_name,
			collet_address_print(&address, one));
		if (more < 0 || (size_t)more >= sizeof(list) - used)
			break;
		used += (size_t)more;
	}
	return collet_fail(COLLET_ERR_CONFIG, "no interface fits '%s' (COLLET_INTERFACE); there are: %s", text, list);
}

collet_status collet_interface_choose(
	const char *text, const struct collet_address *toward, struct collet_address *address)
{
	struct collet_address default_route;
	if (!toward) {  /* 192.0.2.0/24 is reserved for documentation, so it takes the default route */
		static const uint8_t anywhere[4] = { 192, 0, 2, 1 };
		collet_address_ip(&default_route, AF_INET, anywhere, 0, 0);
		toward = &default_route;
	}
	struct collet_address routed;
	const bool has_route = route_source(toward, &routed);
	if (!*text && has_route) {
		*address = routed;
		return COLLET_OK;
	}
	struct ifaddrs *all = NULL;
	if (getifaddrs(&all) < 0)
		return collet_fail(COLLET_ERR_SYSTEM, "getifaddrs: %s", strerror(errno));
	int best = -1;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		struct collet_address candidate;
		if (!to_address(i, &candidate))
			continue;
		int position = position_in_list(text, i->ifa_name, &candidate);
		if (position < 0)
			continue;
		/* If an exclusion leaves several, the route's source address comes first. */
		int cost = has_route && *text == '^' && same_address(&candidate, &routed)
				   ? 0
				   : 1 + cost_of(position, &candidate);
		if (best < 0 || cost < best) {
			best = cost;
			*address = candidate;
		}
	}
	collet_status status = best >= 0 ? COLLET_OK : fail_no_match(text, all);
	freeifaddrs(all);
	return status;
}

bool collet_interface_allows(const char *text, const struct collet_address *address)
{
	struct ifaddrs *all = NULL;
	if (!*text)
		return true;
	if (getifaddrs(&all) < 0)
		return false;
	bool allowed = false;
	for (const struct ifaddrs *i = all; i && !allowed; i = i->ifa_next) {
		struct collet_address candidate;
		allowed = to_address(i, &candidate) && same_address(&candidate, address) &&
			position_in_list(text, i->ifa_name, &candidate) >= 0;
	}
	freeifaddrs(all);
	return allowed;
}
