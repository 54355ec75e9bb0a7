#!/usr/bin/env bash
# get-data keeps what is the data set, and nothing else. Its sources here are folders.
set -eu
command -v curl >/dev/null || { echo 'skipped: there is no curl to read file:// with'; exit 77; }
get_data=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

mkdir "$work/wrong"
for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
	echo 'not this' >"$work/wrong/$name-ubyte.gz"
done
"$get_data" --from "file://$work/wrong" mnist "$work/a" >"$work/log" 2>&1 && fail 'took other bytes for MNIST'
grep -q 'not the data set' "$work/log" || fail 'does not say why'
[ -z "$(ls -A "$work/a")" ] || fail 'left something behind'

"$get_data" --from "file://$work/nowhere" mnist "$work/b" >"$work/log" 2>&1 && fail 'fetched from nowhere'
grep -q -- '--from URL' "$work/log" || fail 'does not say what to try'
[ -z "$(ls -A "$work/b")" ] || fail 'left something behind'

echo 'no archive' >"$work/wrong/cifar-10-binary.tar.gz"
"$get_data" --from "file://$work/wrong" cifar10 "$work/c" >"$work/log" 2>&1 && fail 'unpacked what is no archive'
grep -q 'damaged' "$work/log" || fail 'does not say that it is damaged'

status=0
"$get_data" imagenet "$work/d" >"$work/log" 2>&1 || status=$?
[ $status = 2 ] || fail 'an unknown set is not a mistake of usage'

# With the real thing at hand: kept, and not fetched again.
real=${COLLET_DATA:-/nowhere}/mnist
if [ -f "$real/train-images-idx3-ubyte.gz" ]; then
	"$get_data" --from "file://$real" mnist "$work/e" >/dev/null || fail 'refused MNIST'
	cmp "$real/t10k-labels-idx1-ubyte.gz" "$work/e/mnist/t10k-labels-idx1-ubyte.gz" || fail 'kept something else'
	"$get_data" --from "file://$work/nowhere" mnist "$work/e" >/dev/null || fail 'fetched it again'
fi
