#!/bin/sh
# Trains the direct inverters that docs/claims.md measures, each some 15 minutes on one core: recipes/direct-inverters.sh PHOTOS OUT
# PHOTOS is that of builtin-inverter.sh. All begin with the built-in inverter, which has seen the same photographs, and
# take 1,800 steps on what the defense sends. A stopped training goes on when this is run again.
set -eu

train() {
  name=$1
  shift
  featveil train inverter --images "$photos" --out "$out/$name.onnx" --cache "$out/samples" --start built-in \
    --steps 1800 --minutes 60 --threads 1 "$@"
}

photos=$1 out=$2
mkdir -p "$out"
for m in 2 4 16; do train lifting-$m --defense lifting --dimension $m; done
for epsilon in 10 14; do train subset-$epsilon --defense subset --epsilon $epsilon --subset-size 2; done
