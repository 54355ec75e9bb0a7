/* Tests where a rank runs and listens: ids of hosts and processes, interfaces, usable cores. Also tests the frames of a
 * link. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/address.h"
#include "bootstrap/framed_socket.h"
#include "bootstrap/identity.h"
#include "bootstrap/interface.h"
#include "bootstrap/interface_speed.h"
#include "topology/cores.h"

static void processes_differ_and_hosts_do_not(void **state)
{
	struct collet_peer_info mine = { 0 }, childs = { 0 };
	int pipes[2], status;
	assert_int_equal(collet_peer_info_fill_host(&mine), COLLET_OK);
	assert_int_equal(pipe(pipes), 0);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		if (collet_peer_info_fill_host(&childs) || write(pipes[1], &childs, sizeof(childs)) != sizeof(childs))
			_exit(1);
		_exit(0);
	}
	assert_int_equal(read(pipes[0], &childs, sizeof(childs)), sizeof(childs));
	waitpid(pid, &status, 0);
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(mine.host_id, childs.host_id);
	assert_int_not_equal(mine.process_id, childs.process_id);
	assert_int_equal(mine.pid, getpid());
	setenv("COLLET_HOST_ID", "elsewhere", 1);
	assert_int_equal(collet_peer_info_fill_host(&childs), COLLET_OK);
	unsetenv("COLLET_HOST_ID");
	assert_int_not_equal(mine.host_id, childs.host_id);
}

static void a_rank_says_who_may_read_its_memory(void **state)
{
	static const struct {
		const char *setting;
		collet_status status;
		uint16_t allows_cma;
	} rows[] = { { "1", COLLET_OK, 1 }, { "0", COLLET_OK, 0 }, { "perhaps", COLLET_ERR_CONFIG } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct collet_peer_info info = { 0 };
		setenv("COLLET_SHM_CMA", rows[i].setting, 1);
		assert_int_equal(collet_peer_info_fill_host(&info), rows[i].status);
		assert_int_equal(info.allows_cma, rows[i].allows_cma);
	}
	assert_non_null(strstr(collet_last_error(), "COLLET_SHM_CMA=perhaps"));
	unsetenv("COLLET_SHM_CMA");
}

static void interfaces_are_chosen_by_name_and_network(void **state)
{
	char text[COLLET_ADDRESS_TEXT_BYTES];
	struct collet_address got;
	assert_int_equal(collet_interface_choose("lo", NULL, &got), COLLET_OK);
	assert_string_equal(collet_address_print(&got, text), "127.0.0.1:0");
	assert_int_equal(collet_interface_choose("127.0.0.0/8", NULL, &got), COLLET_OK);
	assert_string_equal(collet_address_print(&got, text), "127.0.0.1:0");
	assert_int_equal(collet_interface_choose("nosuch0, lo", NULL, &got), COLLET_OK);
	assert_true(collet_address_is_loopback(&got));
	assert_true(collet_interface_allows("lo", &got));
	assert_false(collet_interface_allows("^lo", &got));
	assert_false(collet_interface_allows("203.0.113.0/24", &got));
	if (collet_interface_choose("^lo", NULL, &got) == COLLET_OK)
		assert_false(collet_address_is_loopback(&got));
	assert_int_equal(collet_interface_choose("nosuch0", NULL, &got), COLLET_ERR_CONFIG);
	assert_non_null(strstr(collet_last_error(), "lo 127.0.0.1"));  /* lists the interfaces */
	/* The route to this host itself has a loopback source. */
	const struct in_addr self = { .s_addr = htonl(INADDR_LOOPBACK) };
	struct collet_address toward;
	collet_address_ip(&toward, AF_INET, &self, 0, 80);
	assert_int_equal(collet_interface_choose("", &toward, &got), COLLET_OK);
	assert_true(collet_address_is_loopback(&got));
	static const char *const bad[] = { "10.0.0.0/33", "10.0.0/8", "fd00::/129", "^", ",", "eth0,^lo" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(collet_interface_check(bad[i]), COLLET_ERR_CONFIG);
	static const char *const good[] = { "", "eth0", "^docker0,lo", "10.0.0.0/8,fd00::/8" };
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(collet_interface_check(good[i]), COLLET_OK);
}

/* A driver's speed counts only if there is hardware behind it. */
static void speeds_are_of_hardware(void **state)
{
	static const struct {
		const char *driver;
		uint32_t said, believed;
	} rows[] = {
		{"mlx5_core", 100000, 100000},
		{"igb", 1000, 1000},
		{"bonding", 20000, 20000},
		{"virtio_net", UINT32_MAX, 0},
		{"veth", 10000, 0},
		{"tun", 10000, 0},
		{"bridge", 10000, 0},
		{"vmxnet3", 10000, 0},
		{"igb", 0, 0},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(collet_driver_mbps(rows[i].driver, rows[i].said), rows[i].believed);
	struct collet_address loopback, nobodys;
	const struct in_addr self = { .s_addr = htonl(INADDR_LOOPBACK) }, other = { .s_addr = htonl(0xc0000201) };
	collet_address_ip(&loopback, AF_INET, &self, 0, 80);
	collet_address_ip(&nobodys, AF_INET, &other, 0, 80);
	assert_int_equal(collet_interface_mbps(&loopback), 0);
	assert_int_equal(collet_interface_mbps(&nobodys), 0);
}

static void hosts_and_ports_are_parsed_strictly(void **state)
{
	static const struct {
		const char *text, *host;
		uint16_t port;
	} rows[] = {
		{"a:1", "a", 1},
		{"[::1]:65535", "::1", 65535},
		{"10.0.0.1:80", "10.0.0.1", 80},
		{"a", NULL, 0},
		{"a:", NULL, 0},
		{":1", NULL, 0},
		{"a:0", NULL, 0},
		{"a:65536", NULL, 0},
		{"a:1x", NULL, 0},
		{"::1:80", NULL, 0},
		{"[::1]", NULL, 0},
		{"[]:1", NULL, 0},
		{"[:1", NULL, 0},
		{"a:-1", NULL, 0},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char host[64];
		uint16_t port;
		const bool parsed = collet_host_port_parse(rows[i].text, host, sizeof(host), &port);
		if (parsed != (rows[i].host != NULL))
			fail_msg("%s", rows[i].text);
		if (parsed) {
			assert_string_equal(host, rows[i].host);
			assert_int_equal(port, rows[i].port);
		}
	}
	char tiny[4];
	uint16_t port;
	assert_false(collet_host_port_parse("long:1", tiny, sizeof(tiny), &port));
}

/* ---- Cores ---- */

static void write_file(const char *folder, const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void a_quota_limits_the_cores(void **state)
{
	char root[] = "/tmp/collet-test-XXXXXX", inner[64], groups[64], path[128];
	assert_non_null(mkdtemp(root));
	snprintf(inner, sizeof(inner), "%s/job", root);
	snprintf(groups, sizeof(groups), "%s/groups", root);
	assert_int_equal(mkdir(inner, 0700), 0);
	write_file(root, "groups", "0::/job\n");
	const uint32_t all = collet_usable_cores_at(root, groups);
	assert_true(all >= 1);
	static const struct {
		const char *outer, *inner;
		uint32_t most;
	} rows[] = {
		{"max 100000", "max 100000", UINT32_MAX},
		{"max 100000", "100000 100000", 1},
		{"50000 100000", "max 100000", 1},
		{"150000 100000", "max 100000", 2},
		{"rubbish", "1 0", UINT32_MAX},
		{"max 100000", "6400000 100000", 64},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		write_file(root, "cpu.max", rows[i].outer);
		write_file(inner, "cpu.max", rows[i].inner);
		assert_int_equal(collet_usable_cores_at(root, groups), rows[i].most < all ? rows[i].most : all);
	}
	snprintf(path, sizeof(path), "%s/cpu.max", inner);
	unlink(path);
	rmdir(inner);
	static const char *const names[] = { "cpu.max", "groups" };
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", root, names[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(root), 0);
	assert_true(collet_usable_cores() >= 1);
}

/* ---- Frames ---- */

static void frames_are_bounded_and_whole(void **state)
{
	int pair[2];
	struct collet_framed_socket link, other;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	collet_framed_socket_init(&link, pair[0], 100);
	collet_framed_socket_init(&other, pair[1], 100);
	assert_int_equal(collet_framed_socket_read(&link), COLLET_PENDING);
	char data[101];
	memset(data, 'd', sizeof(data));
	struct collet_frame frame = { .kind = COLLET_FRAME_MESSAGE, .bytes = 100 };
	for (uint32_t i = 0; i < sizeof(frame) + 100; i++) {  /* byte by byte */
		const uint8_t *from = i < sizeof(frame) ? (uint8_t *)&frame + i : (uint8_t *)data;
		assert_int_equal(collet_framed_socket_read(&link), COLLET_PENDING);
		assert_int_equal(send(pair[1], from, 1, 0), 1);
	}
	assert_int_equal(collet_framed_socket_read(&link), COLLET_OK);
	assert_int_equal(link.frame.bytes, 100);
	assert_memory_equal(link.in, data, 100);
	frame.bytes = 0;
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(collet_framed_socket_send(&other, &frame, NULL), COLLET_OK);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(collet_framed_socket_read(&link), COLLET_OK);
	assert_int_equal(collet_framed_socket_read(&link), COLLET_PENDING);
	frame.bytes = 101;
	assert_int_equal(collet_framed_socket_send(&other, &frame, data), COLLET_OK);
	assert_int_equal(collet_framed_socket_read(&link), COLLET_ERR_TRANSPORT);
	collet_framed_socket_deinit(&link);
	frame.bytes = 10;
	assert_int_equal(collet_framed_socket_send(&other, &frame, data), COLLET_ERR_TRANSPORT);
	collet_framed_socket_deinit(&other);
	collet_framed_socket_deinit(&other);
}

static void what_is_never_read_has_a_limit(void **state)
{
	int pair[2];
	struct collet_framed_socket link;
	collet_status status = COLLET_OK;
	uint64_t sent = 0;
	static char data[65536];
	const struct collet_frame frame = { .kind = COLLET_FRAME_MESSAGE, .bytes = sizeof(data) };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	collet_framed_socket_init(&link, pair[0], 0);
	while (status == COLLET_OK && sent < (64u << 20)) {
		status = collet_framed_socket_send(&link, &frame, data);
		sent += sizeof(data);
	}
	assert_int_equal(status, COLLET_ERR_PEER_LOST);
	collet_framed_socket_deinit(&link);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_differ_and_hosts_do_not),
		cmocka_unit_test(a_rank_says_who_may_read_its_memory),
		cmocka_unit_test(interfaces_are_chosen_by_name_and_network),
		cmocka_unit_test(speeds_are_of_hardware),
		cmocka_unit_test(hosts_and_ports_are_parsed_strictly),
		cmocka_unit_test(a_quota_limits_the_cores),
		cmocka_unit_test(frames_are_bounded_and_whole),
		cmocka_unit_test(what_is_never_read_has_a_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
