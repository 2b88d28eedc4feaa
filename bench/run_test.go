package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestRowsAreRunAgainOntoARunOfTheSamePrograms(t *testing.T) {
	earlier := &record{Facts: facts{Hashes: map[string]string{"sluice": "a"}, Rounds: 6}, Samples: slices.Concat(cells("idle TCP connections", sluice, 1), cells("TCP bulk, 1 connection", sluice, 2))}
	raw, err := json.Marshal(earlier)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "samples.json")
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	now := &record{Facts: facts{Hashes: map[string]string{"sluice": "a"}, Date: "today"}}
	rec, err := continued(path, now, regexp.MustCompile("^idle"))
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Samples) != 1 || rec.Samples[0].Scenario != "TCP bulk, 1 connection" || rec.Facts.Rounds != 6 || !strings.Contains(strings.Join(rec.Facts.Notes, ""), "`^idle` were run again on today") {
		t.Errorf("got %+v", rec)
	}
	now.Facts.Hashes["sluice"] = "b"
	if _, err := continued(path, now, regexp.MustCompile("^idle")); err == nil || !strings.Contains(err.Error(), "sluice is another program now") {
		t.Errorf("another sluice: %v", err)
	}
}
