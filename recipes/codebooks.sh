#!/bin/sh
# Rebuilds the codebooks that docs/claims.md measures: recipes/codebooks.sh PHOTOS SCENES OUT
# PHOTOS holds the folders imagenet1k and bsds500_train (see builtin-sift.sh), SCENES is a folder in HPatches layout. The
# 16,384 words called photos16k are the built-in database. refs16k is made of image 1 of every scene, the images that a
# service would have: the words then come from the same places as the queries, but not from the queries.
set -eu

mkdir -p "$3/refs"
for scene in "$2"/*/; do
  for image in "$scene"1.*; do cp "$image" "$3/refs/$(basename "$scene").${image##*.}"; done
done
featveil database build "$3/refs" --out "$3/refs16k.safetensors" --clusters 16384 --max-per-image 10000 --iterations 10
featveil database build "$1/imagenet1k" "$1/bsds500_train" --out "$3/photos64k.safetensors" \
  --clusters 65536 --max-per-image 1000 --max-descriptors 800000 --iterations 8
featveil database build "$1/imagenet1k" "$1/bsds500_train" --out "$3/photos128k.safetensors" \
  --clusters 131072 --max-per-image 1000 --max-descriptors 800000 --iterations 4
