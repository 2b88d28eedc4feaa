package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// headlines are the rows that README.md shows, by the name of the line.
var headlines = []string{
	"HTTP/1.1 1 KB Istio-shaped, 32 connections",
	"two sidecars with mTLS, HTTP/1.1 1 KB Istio-shaped, 32 connections",
	"gRPC unary, 16 × 20 streams",
	"TCP bulk, 1 connection",
	"mTLS bulk down, 1 connection",
	"mutual handshake P-256, full",
	"HTTP/1.1 1 KB, half of Envoy's maximum: added latency p99",
	"process at rest: memory 2 s after start",
	"10,000 clusters from ADS: memory",
	"10,000 clusters from ADS: all clusters and endpoints changed, effect",
}

// The lines of README.md between which headlines stand.
const headBegin, headEnd = "<!-- bench: begin -->\n", "<!-- bench: end -->\n"

// headline is a short table: every loss, then the chosen rows.
func headline(j *judgement) string {
	var out strings.Builder
	out.WriteString("| row | unit | sluice | Envoy | ratio |\n|---|---|---|---|---|\n")
	put := func(l line) {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", l.name, l.unit, figure(l.ours), figure(l.rival()), figure(l.ratio.Mid))
	}
	for _, l := range j.lines[lost] {
		put(l)
	}
	rest := slices.Concat(j.lines[even:]...)
	for _, name := range headlines {
		if i := slices.IndexFunc(rest, func(l line) bool { return l.name == name }); i >= 0 {
			put(rest[i])
		}
	}
	return out.String()
}

// writeHeadline puts the short table into the file that has a place for it.
func writeHeadline(path string, j *judgement) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), headBegin)
	_, after, ended := strings.Cut(rest, headEnd)
	if !found || !ended {
		return fmt.Errorf("%s has no place for the short table: %q and %q", path, headBegin, headEnd)
	}
	return os.WriteFile(path, []byte(before+headBegin+headline(j)+headEnd+after), 0o644)
}
