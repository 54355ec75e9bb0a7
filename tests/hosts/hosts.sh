#!/usr/bin/env bash
# Tests several hosts on one machine: network namespaces on one bridge, each with a name, an address and processes of
# its own. collet must detect which ranks share a host.
#
#   hosts.sh check4|check6|ragged|kill|cut COLLET-RUN HOSTS-MAIN
#   hosts.sh rate COLLET-RUN COLLET-BENCH [RATE]
#   hosts.sh speed COLLET-RUN COLLET-BENCH
#
# check4, check6  every algorithm of every collective on 3 hosts of 2 ranks, over IPv4 and IPv6
# ragged          the same on hosts of 3, 1 and 2 ranks
# kill            kills all processes of a host: every other rank reports the loss of one of its ranks
# cut             pulls a host's cable: the same, by keep-alive
# rate            measures all-reduce, all-gather and reduce-scatter of 16 MiB on 2 hosts of 4 ranks with links of RATE
#                 (1gbit), by a ring along the ranks and one along the hosts. In the model only links count. The former
#                 sends 7/4 or 7/8 of the bytes through each, the latter 2/2 or 4/8, so 1.75 times the time
# speed           compares the choices for links of 1 Gbit/s (a veth's own speed is not believed) and of 10 Gbit/s
#                 (set by a tuning): they differ, and over links of 1 Gbit/s the former is faster
# Skipped (77) where namespaces cannot be made: not root, no ip(8), no veth.
set -euo pipefail
what=$1 run=$2 main=$3

skip() { echo "skipped: $*"; exit 77; }
fail() { echo "failed: $*"; tail -n 20 "$folder"/host* 2>/dev/null || true; exit 1; }

[ "$(id -u)" -eq 0 ] || skip 'network namespaces are made by root'
command -v ip >/dev/null || skip 'there is no ip(8): install iproute2'
command -v unshare >/dev/null && command -v taskset >/dev/null || skip 'there is no unshare(1) or taskset(1)'

job=collet-$$
folder=$(mktemp -d)
hosts=3
[ "$what" != rate ] && [ "$what" != speed ] || hosts=2
clean_up() {
	local i
	for i in 0 1 2 switch; do
		ip netns pids "$job-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
		ip netns del "$job-$i" 2>/dev/null || true
	done
	rm -rf "$folder"
}
trap clean_up EXIT

ip netns add "$job-switch" 2>"$folder/error" || skip "no network namespace: $(cat "$folder/error")"
ip -n "$job-switch" link add bridge type bridge 2>"$folder/error" || skip "no bridge: $(cat "$folder/error")"
ip -n "$job-switch" link set bridge up
for ((i = 0; i < hosts; i++)); do
	ip netns add "$job-$i"
	ip -n "$job-$i" link add eth0 type veth peer name "port$i" netns "$job-switch" 2>"$folder/error" ||
		skip "no veth: $(cat "$folder/error")"
	ip -n "$job-switch" link set "port$i" master bridge up
	ip -n "$job-$i" link set lo up
	ip -n "$job-$i" addr add "10.199.0.$((i + 1))/24" dev eth0
	ip -n "$job-$i" link set eth0 up
	ip -n "$job-$i" -6 addr add "fd00:c011::$((i + 1))/64" dev eth0 nodad 2>/dev/null || true
done

unset COLLET_HOST_ID COLLET_INTERFACE COLLET_STORE COLLET_ALGORITHM COLLET_TRANSPORT COLLET_DETERMINISTIC
export COLLET_SECRET=hosts-of-one-machine COLLET_JOB=$job COLLET_RENDEZVOUS_TIMEOUT=60

# on HOST COMMAND...: runs the command there, under a name of its own, on one core: hosts of one machine do not know
# that they share its cores, and would spin on them.
on() {
	local host=$1 core
	shift
	core=$(taskset -cp $$ | sed 's/.*[:, -]//')
	exec ip netns exec "$job-$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "host$host" \
		taskset -c "$core" "$@"
}

# start HOST ADDRESS ARGUMENT...: collet-run with two ranks, in the background; its output goes to $folder/hostN.
start() {
	local host=$1 address=$2
	shift 2
	on "$host" "$run" -n 2 --nnodes $hosts --node-rank "$host" --rdzv-endpoint "$address:29400" --bind none --no-prefix \
		--timeout 240 "$main" "$@" >>"$folder/host$host" 2>&1 &
	pids[host]=$!
}

check_all() {
	local i address=$1
	for ((i = 0; i < hosts; i++)); do start "$i" "$address" check $hosts; done
	for ((i = 0; i < hosts; i++)); do wait "${pids[i]}" || fail "host $i ended with $?"; done
	[ "$(cat "$folder"/host? | grep -c ' of 6 on 3 hosts: .* are right$')" -eq 6 ] || fail 'not six ranks say that all is right'
}

# Starts ranks by a launcher's variables, as collet-run starts equally many ranks on each host.
check_ragged() {
	local counts=(3 1 2) host local rank=0
	pids=()
	for ((host = 0; host < hosts; host++)); do
		for ((local = 0; local < counts[host]; local++)); do
			RANK=$rank WORLD_SIZE=6 LOCAL_RANK=$local LOCAL_WORLD_SIZE=${counts[host]} MASTER_ADDR=10.199.0.1 \
				MASTER_PORT=29400 on "$host" "$main" check $hosts >>"$folder/host$host" 2>&1 &
			pids+=($!)
			rank=$((rank + 1))
		done
	done
	for ((rank = 0; rank < 6; rank++)); do wait "${pids[rank]}" || fail "rank $rank ended with $?"; done
	[ "$(cat "$folder"/host? | grep -c ' of 6 on 3 hosts: .* are right$')" -eq 6 ] || fail 'not six ranks say that all is right'
}

# lose MOST-MS COMMAND...: all ranks loop, the command removes host 2, and ranks 0 to 3 must report the loss in time.
# Rank 0 says when all have started. Warnings may come before that, as of a long wait on a busy machine.
lose() {
	local i most=$1 began
	shift
	for ((i = 0; i < hosts; i++)); do
		: >"$folder/host$i"
		start "$i" 10.199.0.1 loop
	done
	timeout 240 grep -qx going <(tail -n +1 -s 0.1 -f --pid="${pids[0]}" "$folder/host0") || fail 'rank 0 does not get going'
	began=$(date +%s%N)
	"$@"
	for i in 0 1; do wait "${pids[i]}" || fail "host $i ended with $?"; done
	local took=$((($(date +%s%N) - began) / 1000000))
	for i in 0 1 2 3; do
		grep -hE "^rank $i: COLLET_ERR_PEER_LOST: .*rank [45] \(?on host2" "$folder/host0" "$folder/host1" ||
			fail "rank $i did not say which rank of host2 it lost"
	done
	[ "$took" -le "$most" ] || fail "it took $took ms"
	echo "all four ranks knew after $took ms"
}

# measure COLLECTIVE [ALGORITHM]: prints rank 0's algorithm (chosen, if none is named) and the median of 5 calls of 16
# MiB in us. Each host has one core, and knows that it has no more.
measure() {
	local host cores=("$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$(taskset -cp $$ | sed 's/.*[:, -]//')")
	for host in 1 0; do
		ip netns exec "$job-$host" taskset -c "${cores[host]}" "$run" -n 4 --nnodes 2 --node-rank "$host" \
			--rdzv-endpoint 10.199.0.1:29400 --bind none --no-prefix --timeout 240 \
			"$main" "$1" ${2:+--algorithm "$2"} --sizes 16M --iters 5 >"$folder/host$host" 2>&1 &
		pids[host]=$!
	done
	for host in 0 1; do wait "${pids[host]}" || fail "$1 on host $host ended with $?"; done
	awk '$3 == "f32" { print $5, $8 }' "$folder/host0"
}

# median ALGORITHM: prints the median of its measurements on standard input, in us.
median() {
	awk -v algorithm="$1" '$1 == algorithm { print $2 }' | sort -n |
		awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# compare COLLECTIVE FLAT HIERARCHICAL TIMES: measures both in turns. FLAT must take TIMES as long as HIERARCHICAL, plus
# or minus a fifth, and the chosen algorithm at most a tenth longer.
compare() {
	local i chosen
	for i in 1 2 3; do
		measure "$1" "$2" >>"$folder/$1"
		measure "$1" "$3" >>"$folder/$1"
	done
	chosen=$(measure "$1")
	awk -v what="$1" -v flat="$2" -v hierarchical="$3" -v long="$(median "$2" <"$folder/$1")" \
		-v short="$(median "$3" <"$folder/$1")" -v times="$4" -v chosen="${chosen% *}" -v took="${chosen#* }" 'BEGIN {
		printf "%s of 16 MiB: %s %.0f ms, %s %.0f ms: %.2f times as long, the model says %.2f; chosen is %s, %.0f ms\n",
			what, flat, long / 1e3, hierarchical, short / 1e3, long / short, times, chosen, took / 1e3
		exit long / short < 0.8 * times || long / short > 1.2 * times || took > 1.1 * short }' ||
		fail "the model is more than a fifth off, or what is chosen takes longer than $3"
}

limit_links() {
	local i
	command -v tc >/dev/null || skip 'there is no tc(8)'
	for i in 0 1; do
		tc -n "$job-$i" qdisc add dev eth0 root tbf rate "$1" burst 256kb latency 400ms 2>"$folder/error" ||
			skip "no tbf: $(cat "$folder/error")"
	done
}

compare_over_slow_links() {
	limit_links "$1"
	echo "2 hosts of 4 ranks, $1:"
	compare allreduce ring hierarchical_ring 1.75
	compare allgather ring hierarchical 1.75
	compare reduce_scatter ring hierarchical 1.75
}

# Writes a tuning with the links that the hosts would take from the built-in one, which is measured again now and then.
# fast: also with a network link.
write_tuning() {
	cat <<-'text'
		collet-tuning 2
		machine any
		link shm 8 2
		latency 4400
		message 520
		piece 0
		byte 0.19 0.125 0.095 0.095
		far_byte 0.08
		reduce_byte 0
		far_reduce_byte 0
		near 524288
		pieces 65536 262144
		channels 1 0 0 0
		link tcp 8 2
		latency 7300
		message 1900
		piece 3500
		byte 0.3 0.16 0.25 0.25
		far_byte 0.085
		reduce_byte 0.07
		far_reduce_byte 0
		near 4194304
		pieces 65536 262144
		channels 1 1.25 1.46 0
	text
	[ "$1" != fast ] || cat <<-'text'
		link network 1 1
		latency 0
		message 1
		piece 1
		byte 0.8 0.8 0.8 0.8
		far_byte 0
		reduce_byte 0
		far_reduce_byte 0
		near 0
		pieces 65536 262144
		channels 1 0 0 0
	text
	echo end
}

choose_by_speed() {
	local one ten
	limit_links 1gbit
	write_tuning slow >"$folder/slow"
	write_tuning fast >"$folder/fast"
	one=$(COLLET_TUNING=$folder/slow measure allreduce)
	ten=$(COLLET_TUNING=$folder/fast measure allreduce)
	echo "all-reduce of 16 MiB on 2 hosts of 4 ranks over 1 Gbit/s: chosen for that ${one/ /, } us; for 10 Gbit/s ${ten/ /, } us"
	[ "${one% *}" != "${ten% *}" ] || fail 'the same is chosen for both'
	awk -v own="${one#* }" -v other="${ten#* }" 'BEGIN { exit own > 1.1 * other }' ||
		fail 'what is chosen for 1 Gbit/s is slower there'
}

# collet-run is the first to be killed, and may end the others before their turn.
kill_host() { ip netns pids "$job-2" | xargs kill -9 2>/dev/null || true; }
cut_host() { ip -n "$job-switch" link set port2 down; }

case $what in
check4) check_all 10.199.0.1 ;;
check6)
	ip -n "$job-0" -6 addr show dev eth0 | grep -q fd00:c011::1 || skip 'there is no IPv6'
	check_all '[fd00:c011::1]'
	;;
ragged) check_ragged ;;
kill) lose 30000 kill_host ;;
cut) lose 60000 cut_host ;;
speed) choose_by_speed ;;
rate) compare_over_slow_links "${4:-1gbit}" ;;
*) fail "no check $what" ;;
esac
echo passed
