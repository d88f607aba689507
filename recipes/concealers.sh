#!/bin/sh
# Trains the concealers that docs/claims.md measures, and inverters to measure them with: recipes/concealers.sh PHOTOS OUT
# PHOTOS is that of builtin-inverter.sh; some two and a half hours on one core. The inverters begin with nothing, as in the paper, and
# all take the same 1,800 steps, that of raw descriptors too. A stopped training goes on when this is run again.
set -eu

train() {
  name=$1
  shift
  featveil train inverter --images "$photos" --out "$out/$name.onnx" --cache "$out/samples" --steps 1800 --minutes 60 \
    --threads 1 "$@"
}

photos=$1 out=$2
mkdir -p "$out"
[ -d "$out/patches" ] || featveil patches build "$photos" --out "$out/patches" --part train
featveil train concealer --images "$photos" --patches "$out/patches" --out "$out" --cache "$out/samples" --start built-in \
  --lambdas 0.1,1,2.5,25 --threads 1 \
  --data-note "patches of 1,162 photographs, pieces of 1,385 of BSDS500, ImageNet, Urban100, Sun-Hays and landmarks (research use)" \
  --licence "the weights: Apache-2.0, as featveil; the photographs they were learned from are for research and are not part of it"
train raw-unet
for strength in 0.1 1 2.5 25; do
  train concealed-$strength-unet --defense concealer --concealer "$out/sift-$strength.safetensors"
done
