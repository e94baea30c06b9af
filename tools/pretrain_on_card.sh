#!/bin/sh
# Pretrain `small` for some minutes on a graphics card, while the other processors draw its lines.
#
#   MATERIAL=material OUT=out HEIGHT=96 MINUTES=10 sh tools/pretrain_on_card.sh
#
# MATERIAL is made before, without a card:
#   start/    the checkpoint to start from, such as src/dsocr/models/bases/small
#   lines/    the cache of real lines: `pretrain_small.py lines DATASET... --cache lines --height HEIGHT`
#   sheets    what `draw_hands.py sheets` wrote (sheets.*)
#   words/    tables of the package wordfreq; lists/ of Hunspell
#   fonts/, russkopis/  if they are there, they are drawn from, too
#   checkpoint.*        pieces of an earlier checkpoint, which is resumed
# OUT gets the best weights (best/), the log, and the checkpoint in pieces of 16 MiB.
# On a CPU, to try it: DEVICE=cpu MINUTES=1 WORKERS=0 LINES=4 COUNT=20.
set -eu
PYTHON=${PYTHON:-python} DEVICE=${DEVICE:-cuda} HEIGHT=${HEIGHT:-48} MINUTES=${MINUTES:-10}
LINES=${LINES:-64} WORKERS=${WORKERS:-6} COUNT=${COUNT:-500} STEPS=${STEPS:-1000000}
tools=$(dirname "$0") work=$(mktemp -d)
mkdir -p "$OUT" "$work/cache"
cp "$MATERIAL"/lines/* "$work/cache/"
cat "$MATERIAL"/checkpoint.* > "$work/checkpoint.safetensors" 2> /dev/null || rm -f "$work/checkpoint.safetensors"

draw() { # SOURCE SEED OPTIONS...: round after round, each in a file that the training takes in
    source=$1 seed=$2 round=0
    shift 2
    while [ ! -e "$work/done" ]; do
        OMP_NUM_THREADS=1 "$PYTHON" "$tools/draw_hands.py" lines "$source" --cache "$work/cache" \
            --name "drawn-$source-$seed-$round" --first $((round * COUNT)) --count "$COUNT" --seed "$seed" \
            --height "$HEIGHT" --sheets "$MATERIAL/sheets" --words "$MATERIAL/words" --lists "$MATERIAL/lists" "$@" \
            >> "$OUT/drawing.log" 2>&1 || return
        round=$((round + 1))
    done
}

seed=$(date +%s)
for part in ${PARTS:-1 2}; do
    draw tracks "$seed$part" &
    [ -d "$MATERIAL/fonts" ] && draw fonts "$seed$part" --fonts "$MATERIAL/fonts" &
    [ -d "$MATERIAL/fonts" ] && draw latin "$seed$part" --fonts "$MATERIAL/fonts" &
    [ -d "$MATERIAL/russkopis" ] && draw joined "$seed$part" --russkopis "$MATERIAL/russkopis" &
done
trap 'touch "$work/done"; wait; rm -rf "$work"' EXIT
"$PYTHON" "$tools/pretrain_small.py" train --base "$MATERIAL/start" --cache "$work/cache" --work "$work" \
    --out "$OUT/best" --device "$DEVICE" --minutes "$MINUTES" --steps "$STEPS" --lines "$LINES" --workers "$WORKERS" \
    --pool 1024 --check-minutes 3 2>&1 | tee "$OUT/training.log"
split -b 16777216 "$work/checkpoint.safetensors" "$OUT/checkpoint."
cp "$work/log.jsonl" "$OUT/"
