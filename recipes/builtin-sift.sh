#!/bin/sh
# Rebuilds the database that comes with featveil: recipes/builtin-sift.sh PHOTOS OUT.safetensors
# PHOTOS holds the folders imagenet1k (1 photo a class of ImageNet-1k) and bsds500_train (BSDS500, training split).
set -eu

featveil database build "$1/imagenet1k" "$1/bsds500_train" --out "$2" \
  --kind sift --clusters 16384 --parts 16 --max-per-image 1000 --max-descriptors 1000000 --iterations 10 --seed 0 \
  --source "ImageNet-1k sample (one photo of each of 959 classes) and the BSDS500 training split (200 photos)" \
  --licence "Photos: non-commercial research use (ImageNet, BSDS500). The entries are k-means centroids, aggregate statistics of descriptors (median 46 an entry, 10 entries of a single one)."
