#!/usr/bin/env bash
# Tests ranks that use verbs, inside the machine of vm. Even ones use rxe0 (10.77.0.1), odd ones rxe1 (10.77.0.2), as if
# on two hosts. In a machine with iWARP (vm -d siw) they use siw0 and siw1.
#
#   verbs.sh CHECK...
#
# all:N   every algorithm of every collective on N ranks
# lean    the same on 4 of which each has at most one wide endpoint
# rails   the same on 2 that use both devices
# lossy   the same on 2, over a cable that loses 1 % and delays by 1 ms; and over TCP
# limit   the same on 2, as a user who may lock 64 KiB: large messages use staging, and a warning says what to raise
# leak    the same on 2: all objects are freed afterwards
# apart   RDMA does not cross the cable, TCP does: pairs that may use either use TCP
# kill    kills a rank during its calls: all others report who is lost
# down    pulls the cable: both ends fail, at least one in its adapter's words
# removed removes the adapters (the last check: they do not come back): both ends report that the port is gone
# ratio   an all-reduce of 2 takes at most 1.3 (1 MiB) and 1.5 (8 bytes) of the time of an exchange by hand
# alone   (iWARP) without librdmacm its devices are refused by name if verbs is asked for, else not used
# train   some steps of training on 2 give the same parameters, bit for bit, as over TCP
#
# Variables: MODULE, the file of the module; MAIN, hosts_main; TRAIN, collet-train (train); BENCH, collet-bench (ratio).
set -euo pipefail
folder=
trap 'rm -rf "$folder"' EXIT
fail() { echo "failed: $*"; tail -n 20 "$folder"/rank* 2>/dev/null || true; exit 1; }

export COLLET_TRANSPORT_PATH=${MODULE%/*} COLLET_TRANSPORT=verbs COLLET_SECRET=two-hosts-of-one-machine COLLET_RENDEZVOUS_TIMEOUT=120
export MASTER_ADDR=10.77.0.1 MASTER_PORT=29400
export COLLET_LOG=warn
kind=rxe
[ ! -e /sys/class/infiniband/siw0 ] || kind=siw

# start N ARGUMENT...: starts ranks 0 to N-1, odd ones on the second host; their output goes to $folder/rankR.
start() {
	local size=$1 rank host
	shift
	export COLLET_JOB=job-$RANDOM
	pids=()
	for ((rank = 0; rank < size; rank++)); do
		host=$((rank % 2))
		: >"$folder/rank$rank"
		RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$((rank / 2)) LOCAL_WORLD_SIZE=$(((size + 1 - host) / 2)) \
			COLLET_HOST_ID=host$host COLLET_INTERFACE=net$host COLLET_VERBS_DEVICES=${devices[host]} \
			"${as[@]}" "$program" "$@" >"$folder/rank$rank" 2>&1 &
		pids+=($!)
	done
}

check() {
	local size=$1 rank
	start "$size" check 2
	for ((rank = 0; rank < size; rank++)); do wait "${pids[rank]}" || fail "rank $rank ended with $?"; done
	[ "$(cat "$folder"/rank? | grep -c " of $size on 2 hosts: .* are right$")" -eq "$size" ] || fail "not all $size say that all is right"
}

# Rank 0 says when all have started. Warnings may come before that, as of a long wait in a slow machine.
await_going() {
	timeout 240 grep -qx going <(tail -n +1 -s 0.1 -f --pid="${pids[0]}" "$folder/rank0") || fail 'rank 0 does not get going'
}

# lose N LOST COMMAND...: N ranks loop, and the command removes rank LOST, or none. All others must report that in time:
# the longest wait, for silent connections, is half of it.
lose() {
	local size=$1 lost=$2 rank began took
	shift 2
	start "$size" loop
	await_going
	began=$(date +%s%N)
	"$@"
	for ((rank = 0; rank < size; rank++)); do wait "${pids[rank]}" || true; done
	took=$((($(date +%s%N) - began) / 1000000))
	for ((rank = 0; rank < size; rank++)); do
		[ "$rank" -eq "$lost" ] || grep -qE "^rank $rank: COLLET_ERR_(PEER_LOST|TRANSPORT): " "$folder/rank$rank" ||
			fail "rank $rank was not told"
	done
	[ "$took" -le 60000 ] || fail "it took $took ms"
	cat "$folder"/rank?
	echo "all knew after $took ms"
}

# says WHAT STATE: checks that a rank names its adapter, the other's, the reported error, and the state of its port.
says() {
	grep -qiE "verbs: .* rank [01] on .*: ${kind}[01] port 1(, GID 1)? \(10\.77\.0\.[12]\) to 10\.77\.0\.[12]:? ($1); the port is ($2)" \
		"$folder"/rank?
}

lossy() {
	local i
	for i in 0 1; do tc qdisc add dev net$i root netem delay 1ms loss 1%; done
	# 67 ms, seven times: what is lost is sent again soon, and a machine that stands still for a while has not lost a peer.
	COLLET_VERBS_TIMEOUT=14 check 2
	COLLET_TRANSPORT=tcp check 2
	for i in 0 1; do tc qdisc del dev net$i root; done
}

# RoCE is UDP.
apart() {
	local i
	for i in 0 1; do
		tc qdisc add dev net$i clsact
		tc filter add dev net$i ingress protocol ip u32 match ip protocol 17 0xff action drop
	done
	COLLET_TRANSPORT=verbs,tcp COLLET_LOG=info COLLET_VERBS_TIMEOUT=12 check 2
	for i in 0 1; do tc qdisc del dev net$i clsact; done
	grep -q 'verbs to rank [01]: verbs: .* GID 1 (10.77.0.[12]) to 10.77.0.[12]: transport retry counter exceeded' "$folder"/rank? ||
		fail 'it is not said why verbs would not do'
	grep -q 'rank [01]: tcp, channel 0' "$folder"/rank? || fail 'no pair uses tcp'
	! grep -q 'rank [01]: verbs, channel' "$folder"/rank? || fail 'a pair uses verbs'
}

limit() {
	as=(setpriv --reuid 1000 --regid 1000 --clear-groups prlimit --memlock=65536)
	check 2
	grep -q 'raise the limit of locked memory' "$folder"/rank? || fail 'no warning says what to raise'
}

# The kernel frees a process's objects soon after its end.
leak() {
	local before
	before=$(rdma resource show)
	check 2
	timeout 20 bash -c 'until [ "$(rdma resource show)" = "$0" ]; do sleep 0.1; done' "$before" ||
		fail "there were $before, and now there are $(rdma resource show)"
}

kill_rank_2() { kill -9 "${pids[2]}"; }

kill_one() {
	lose 3 2 kill_rank_2 2>/dev/null
	[ "$(cat "$folder"/rank? | grep -cE '^rank [01]: COLLET_ERR_PEER_LOST: .*rank 2 ')" -eq 2 ] || fail 'who is lost is not said'
}

# Both adapters soon detect the cable again.
plug_cable() {
	local i
	ip link set net1 up
	ip route replace 10.77.0.1 dev net1 src 10.77.0.2 table 77
	for i in 0 1; do
		timeout 60 bash -c "until rdma link show ${kind}$i/1 | grep -q 'state ACTIVE'; do sleep 0.1; done" || fail "${kind}$i stays down"
	done
}

# An adapter that cannot send fails immediately; one that gets no reply fails after its retries.
pull_cable() {
	lose 2 -1 ip link set net1 down
	plug_cable
	says '.* error .*|transport retry counter exceeded.*' '.*' || fail 'neither names the adapter and what it said'
}

# Removes a device with its network interface, which goes when nobody has it open any more.
take_out() { timeout 100 ip link del net1 & taken=$!; }

removed() {
	local i
	lose 2 -1 take_out
	wait "$taken" || fail 'it is still there'
	says '.*' 'gone|down' || fail 'it is not said what is gone'
	for i in 0 1; do ! rdma link show ${kind}$i/1 2>/dev/null | grep -q . || fail "${kind}$i is still there"; done
}

# member NAME BYTES: prints this member of the JSON object about so many bytes.
member() { sed -n "s/.*\"bytes\":$2,.*\"$1\":\([0-9.e+]*\).*/\1/p"; }

# Both run on this machine in the same minute, in turns, so the cost of emulation cancels in the ratio.
ratio() {
	local bytes round most median
	local -A ratios=() mosts=([8]=1.5 [1048576]=1.3)
	for round in 1 2 3 4 5; do
		"$BENCH" limits --transport verbs --sizes 1M --seconds 0.05 --json - 2>/dev/null >"$folder/limits" || fail 'there are no limits'
		"$BENCH" allreduce -n 2 --transport verbs --buffers alloc --sizes 8,1M --seconds 0.05 --json - 2>/dev/null \
			>"$folder/allreduce" || fail 'the all-reduce failed'
		for bytes in "${!mosts[@]}"; do
			ratios[$bytes]+="$(grep '"verbs_exchange_add"' "$folder/limits" | member median "$bytes")"
			ratios[$bytes]+=" $(member time_us "$bytes" <"$folder/allreduce")"$'\n'
		done
	done
	for bytes in "${!mosts[@]}"; do
		most=${mosts[$bytes]}
		median=$(awk '{ print $2 / $1 }' <<<"${ratios[$bytes]%$'\n'}" | sort -g | sed -n 3p)
		printf '%s bytes, by hand and all-reduce, us:\n%sratio %s\n' "$bytes" "${ratios[$bytes]}" "$median"
		awk -v ratio="$median" -v most="$most" 'BEGIN { exit !(ratio > 0 && ratio <= most) }' ||
			fail "an all-reduce of $bytes bytes takes $median of the time of an exchange by hand, more than $most"
	done
}

alone() {
	local library
	for library in $(ldconfig -p | sed -n 's/.*librdmacm\.so\.1.* => //p'); do mount --bind /dev/null "$library"; done
	start 2 check 2
	! wait "${pids[0]}" && ! wait "${pids[1]}" || fail 'a rank has found something to use'
	grep -q 'verbs: no port to use among COLLET_VERBS_DEVICES=siw0 (siw0 port 1 is iWARP, which needs librdmacm' "$folder/rank0" ||
		fail 'it is not said why'
	COLLET_TRANSPORT= check 2
}

# Accuracy does not matter here, so the data set is one that needs no files.
train() {
	local transport rank
	program=$TRAIN
	for transport in tcp verbs; do
		COLLET_TRANSPORT=$transport start 2 --dataset digits --steps 4 --batch-size 4 --train-samples 100 --test-samples 20 \
			--dump-parameters "$folder/$transport"
		for rank in 0 1; do wait "${pids[rank]}" || fail "$transport: rank $rank ended with $?"; done
	done
	[ -s "$folder/tcp" ] && cmp "$folder/tcp" "$folder/verbs" || fail 'the parameters differ'
}

for what; do
	folder=$(mktemp -d)
	devices=(${kind}0 ${kind}1) as=() program=$MAIN
	chmod 755 "$folder"
	began=$SECONDS
	case $what in
	all:*) check "${what#*:}" ;;
	lean) COLLET_VERBS_WIDE=1 check 4 ;;
	rails) devices=(${kind}0,${kind}1 ${kind}1,${kind}0); check 2 ;;
	lossy | apart | limit | leak | ratio | alone | train) $what ;;
	kill) kill_one ;;
	down) pull_cable ;;
	removed) removed ;;
	*) fail "no check $what" ;;
	esac
	rm -rf "$folder"
	echo "$what: passed in $((SECONDS - began)) s"
done
