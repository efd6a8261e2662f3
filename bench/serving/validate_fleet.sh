#!/bin/sh
# Measures a replica and compares it with its simulation: step costs, and the error of simulated latencies.
#
#     IMBREX=build/release/examples/engine/imbrex BENCH_FLEET=build/release/bench/bench_fleet \
#         sh bench/serving/validate_fleet.sh FOLDER [options of imbrex bench]
#
# FOLDER gets three traces (calibration, light, heavy), latencies.jsonl, steps.jsonl, costs.json, and for each trace
# validation_TRACE.json: simulated and measured latencies. The costs are fitted without the steps of light and heavy.
# Without options, the Llama-8B shape with random weights on a GPU; about two minutes. Then draw the page's figures:
#
#     python3 bench/serving/fleet.py page FOLDER --bench-fleet "$BENCH_FLEET"
set -eu
folder=${1:?"usage: validate_fleet.sh FOLDER [options of imbrex bench]"}
shift
[ $# -gt 0 ] || set -- --device cuda --random llama-3.1-8b --memory 60G --sequences 256 --context 4096 \
    --requests 1,8,32,128 --input 1024 --output 96
IMBREX=${IMBREX:-imbrex} BENCH_FLEET=${BENCH_FLEET:-bench_fleet}
# LOAD replaces the lengths, RATES the conversations a second of the three traces: for slower machines.
LOAD=${LOAD:-"--input lognormal:512,0.8 --output lognormal:160,0.6 --turns uniform:1,3 --think exponential:3
    --systems 8 --system-tokens uniform:256,1024 --conversation-tokens 4096"}
RATES=${RATES:-"12 6 14"} SECONDS_OF_ARRIVALS=${SECONDS_OF_ARRIVALS:-14}
mkdir -p "$folder"

trace() {  # name, rate, seed, burstiness
    "$BENCH_FLEET" trace --rate "$2" --seconds "$SECONDS_OF_ARRIVALS" $LOAD --seed "$3" --burstiness "$4" \
        --output-file "$folder/$1.jsonl"
}
set_rates() { calibration=$1 light=$2 heavy=$3; }
set_rates $RATES
trace calibration "$calibration" 1 1
trace light "$light" 2 1
trace heavy "$heavy" 3 4

traces=$folder/calibration.jsonl,$folder/light.jsonl,$folder/heavy.jsonl
"$IMBREX" bench "$@" --trace "$traces" --latencies "$folder/latencies.jsonl" --step-costs "$folder/steps.jsonl"
"$BENCH_FLEET" fit "$folder/steps.jsonl" --without "$folder/light.jsonl,$folder/heavy.jsonl" --costs "$folder/costs.json"

line=0
for name in calibration light heavy; do
    line=$((line + 1))
    sed -n ${line}p "$folder/latencies.jsonl" > "$folder/measured.json"
    echo "--- $name"
    "$BENCH_FLEET" simulate --costs "$folder/costs.json" --trace "$folder/$name.jsonl" --policy round-robin \
        --measured "$folder/measured.json" --json "$folder/validation_$name.json"
done
rm "$folder/measured.json"
