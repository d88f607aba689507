#!/bin/sh
# Trains the inverter that comes with featveil, about an hour on one core: recipes/builtin-inverter.sh PHOTOS OUT.onnx
# PHOTOS holds imagenet1k (959 photos), bsds500_train, bsds500_val, urban100, sunhays80 and landmarks: 1,481 in all, of
# which 1,385 are for training. Trained for 28 minutes and then on to 62, so that its learning rate fell twice.
set -eu

for minutes in 28 62; do
  featveil train inverter --images "$1" --out "$2" --extractor sift --geometry either --minutes $minutes --threads 1 \
    --data-note "1,385 photographs of BSDS500, ImageNet, Urban100, Sun-Hays and landmarks (research use), six pieces of each" \
    --licence "the weights: Apache-2.0, as featveil; the photographs they were learned from are for research and are not part of it"
done
