#!/bin/sh
# Trains the concealers that docs/claims.md measures, and inverters to measure them with: recipes/concealers.sh PHOTOS OUT [HARDTFEAT.pth]
# PHOTOS is that of builtin-inverter.sh. Some four hours on one core, and two to three more for HardTFeat, whose weights are a file of the user's.
# The inverters begin with nothing, as in the paper, and all take the same 1,800 steps, those of raw descriptors too. They read columns at
# mean 0 and spread 1 (standardised), or descriptors as they are sent. A stopped training goes on when this is run again.
set -eu

concealers() {
  samples=$1
  shift
  featveil train concealer --images "$photos" --patches "$out/patches" --out "$out" --cache "$out/$samples" --threads 1 "$@" \
    --data-note "patches of 1,162 photographs, pieces of 1,385 of BSDS500, ImageNet, Urban100, Sun-Hays and landmarks (research use)" \
    --licence "the weights: Apache-2.0, as featveil; the photographs they were learned from are for research and are not part of it"
}

inverter() {
  samples=$1 name=$2
  shift 2
  featveil train inverter --images "$photos" --out "$out/$name.onnx" --cache "$out/$samples" --steps 1800 --minutes 90 --threads 1 "$@"
}

photos=$1 out=$2
mkdir -p "$out"
[ -d "$out/patches" ] || featveil patches build "$photos" --out "$out/patches" --part train

concealers samples --start built-in --lambdas 0.1,1,2.5,25
inverter samples raw-unet
inverter samples raw-unet-standardised --standardise
for strength in 0.1 1 2.5 25; do
  network="$out/sift-$strength.safetensors"
  inverter samples concealed-$strength-unet --as-sent --defense concealer --concealer "$network"
  inverter samples concealed-$strength-unet-standardised --standardise --defense concealer --concealer "$network"
done
inverter samples raw-uresnet --architecture uresnet
for strength in 1 2.5; do
  network="$out/sift-$strength.safetensors"
  inverter samples concealed-$strength-uresnet --architecture uresnet --as-sent --defense concealer --concealer "$network"
done

[ $# -gt 2 ] || exit 0
hardtfeat() {
  inverter samples-hardtfeat "$@" --extractor hardtfeat --weights "$weights"
}

weights=$3
concealers samples-hardtfeat --extractor hardtfeat --weights "$weights" --second-order 0.25 --lambdas 0.1,1,2.5
hardtfeat hardtfeat-raw
hardtfeat hardtfeat-raw-standardised --standardise
hardtfeat hardtfeat-concealed-2.5 --as-sent --defense concealer --concealer "$out/hardtfeat-2.5.safetensors"
for strength in 0.1 1 2.5; do
  hardtfeat hardtfeat-concealed-$strength-standardised --standardise --defense concealer --concealer "$out/hardtfeat-$strength.safetensors"
done
