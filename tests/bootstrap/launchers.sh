#!/bin/sh
# Checks that ranks of real launchers bootstrap without any other setting: launchers.sh PROGRAM.
program=$1
home=$(mktemp -d) || exit 1
trap 'rm -rf "$home"' EXIT
export HOME="$home" COLLET_RENDEZVOUS_TIMEOUT=60
unset COLLET_STORE COLLET_JOB COLLET_SECRET COLLET_SECRET_FILE XDG_CONFIG_HOME
failed=0

# expect NAME SIZE OUTPUT: every rank has printed its rank once.
expect() {
	rank=0
	while [ "$rank" -lt "$2" ]; do
		if [ "$(printf '%s\n' "$3" | grep -c "^$1 rank $rank of $2, local $rank\$")" != 1 ]; then
			printf '%s: rank %s is missing in\n%s\n' "$1" "$rank" "$3"
			failed=1
			return
		fi
		rank=$((rank + 1))
	done
	echo "$1: $2 ranks met"
}

if command -v mpirun.openmpi >/dev/null; then
	options=--oversubscribe
	[ "$(id -u)" = 0 ] && options="$options --allow-run-as-root"
	expect "Open MPI" 3 "$(timeout 100 mpirun.openmpi $options -np 3 "$program" 2>&1)"
	expect "Open MPI" 3 "$(timeout 100 mpirun.openmpi $options -np 3 sh -c "$program" 2>&1)"
else
	echo "skipped: no mpirun.openmpi"
fi
if command -v mpirun.mpich >/dev/null; then
	expect "MPICH" 3 "$(timeout 100 mpirun.mpich -np 3 "$program" 2>&1)"
	# Two jobs at once, and a shell in between: each still finds its own.
	timeout 100 mpirun.mpich -np 3 sh -c "$program; :" >"$home/other" 2>&1 &
	expect "MPICH" 3 "$(timeout 100 mpirun.mpich -np 3 sh -c "$program; :" 2>&1)"
	wait
	expect "MPICH" 3 "$(cat "$home/other")"
else
	echo "skipped: no mpirun.mpich"
fi

# Sets the variables of torchrun, whose own store uses the port.
torchrun() {
	for r in 0 1 2; do
		env RANK=$r WORLD_SIZE=3 LOCAL_RANK=$r LOCAL_WORLD_SIZE=3 GROUP_RANK=0 GROUP_WORLD_SIZE=1 ROLE_RANK=$r ROLE_NAME=default \
			ROLE_WORLD_SIZE=3 MASTER_ADDR="$(hostname)" MASTER_PORT=29500 TORCHELASTIC_RUN_ID="test-$$" \
			TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_USE_AGENT_STORE=True \
			timeout 100 "$program" 2>&1 &
	done
	wait
}
expect torchrun 3 "$(torchrun)"
expect none 1 "$("$program" 2>&1)"
exit $failed
