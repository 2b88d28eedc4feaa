package main

import (
	"crypto/tls"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestCertificatesLoadAndEveryBootstrapIsJSON(t *testing.T) {
	dir := t.TempDir()
	if err := writePKI(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server", "client"} {
		if _, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")); err != nil {
			t.Error(err)
		}
	}
	for _, r := range rows() {
		text, err := bootstrap(r, 1, 2, 3)
		if err != nil || !json.Valid(text) {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}

func TestReportPutsLossesFirst(t *testing.T) {
	samples := []sample{
		{Row: "HTTP/1.1 1 KB, 32 connections", Proxy: "sluice", Value: 10}, {Row: "HTTP/1.1 1 KB, 32 connections", Proxy: "envoy", Value: 100},
		{Row: "TCP bulk, 1 connection", Proxy: "sluice", Value: 90}, {Row: "TCP bulk, 1 connection", Proxy: "envoy", Value: 100},
	}
	got := report(samples)
	lost, won := strings.Index(got, "TCP bulk, 1"), strings.Index(got, "HTTP/1.1 1 KB, 32")
	if lost < 0 || won < 0 || lost > won {
		t.Fatalf("the lost row must stand before the won one:\n%s", got)
	}
	if !strings.Contains(got, "Rows over their limit: 1") || !strings.Contains(got, "**0.10**") || !strings.Contains(got, "**0.90**") {
		t.Fatalf("ratios are wrong:\n%s", got)
	}
}
