package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHeadlinesAreRows(t *testing.T) {
	var rows []string
	for _, s := range scenarios() {
		for _, m := range s.metrics {
			rows = append(rows, s.row(m))
		}
	}
	for _, h := range headlines {
		if !slices.Contains(rows, h) {
			t.Errorf("no row is called %q", h)
		}
	}
}

func TestHeadlineShowsLossesFirstAndKeepsTheRestOfTheFile(t *testing.T) {
	lossy := "HTTP/1.1 1 MB, 8 connections"
	rec := &record{Samples: slices.Concat(cells(headlines[0], sluice, 10, 10), cells(headlines[0], envoy, 40, 40), cells(lossy, sluice, 20, 20), cells(lossy, envoy, 10, 10))}
	path := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(path, []byte("before\n"+headBegin+"old\n"+headEnd+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeHeadline(path, rec.judge()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	if strings.Contains(got, "old") || !strings.HasPrefix(got, "before\n") || !strings.HasSuffix(got, "after\n") || !strings.Contains(got, lossy) || strings.Index(got, lossy) > strings.Index(got, headlines[0]) {
		t.Errorf("got\n%s", got)
	}
	if err := os.WriteFile(path, []byte("no place"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeHeadline(path, rec.judge()); err == nil {
		t.Error("a file without a place is written")
	}
}

func TestReadmeHasAPlaceForHeadlines(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), headBegin) || !strings.Contains(string(text), headEnd) {
		t.Error("it was taken out")
	}
}
