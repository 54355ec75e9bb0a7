#!/usr/bin/env bash
# For which GPUs kernels are compiled, by what an nvcc says of itself: each of CUDA 12 and 13, and what is none of these.
#   test_targets.sh TARGETS
set -euo pipefail
targets=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# nvcc RELEASE KIND...: one that has come with this CUDA and knows these kinds of GPU.
nvcc() {
	local release=$1
	shift
	cat >"$root/nvcc" <<-END
		#!/bin/sh
		case \$1 in
		--version) echo 'nvcc: NVIDIA (R) Cuda compiler driver'; echo 'Cuda compilation tools, release $release, V$release.76' ;;
		--list-gpu-arch) printf 'compute_%s\n' $* ;;
		*) exit 1 ;;
		esac
	END
	chmod +x "$root/nvcc"
}

# Machine code for these, then PTX.
expect() {
	local said wanted= kind
	said=$("$targets" "$root/nvcc" | paste -sd ' ')
	for kind in "$@"; do
		wanted+="-gencode arch=compute_$kind,code=sm_$kind "
	done
	wanted+=${1:+-gencode arch=compute_80,code=compute_80}
	[ "$said" = "$wanted" ] || { echo "$release: \"$said\" in place of \"$wanted\""; exit 1; }
}

old='50 52 53 60 61 62 70 72 75 80 86 87 89 90'
for release in 12.0 12.1 12.2 12.3 12.4 12.5 12.6; do
	nvcc $release $old
	expect 80 90
done
release=12.8; nvcc $release $old 100 101 120; expect 80 90 100
release=12.9; nvcc $release $old 100 101 103 120 121; expect 80 90 100
release=13.0; nvcc $release 75 80 86 87 88 89 90 100 103 110 120 121; expect 80 90 100
# Not the kernels' CUDA, and not one.
release=11.8; nvcc $release $old; expect
release=nothing; printf '#!/bin/sh\nexit 1\n' >"$root/nvcc"; expect
release=missing; rm "$root/nvcc"; expect
