package main

import (
	"crypto/tls"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/bench/load"
	"sluice/bench/stat"
)

func TestCertificatesLoad(t *testing.T) {
	for _, algorithm := range []string{"p256", "rsa"} {
		dir := t.TempDir()
		if err := writePKI(dir, algorithm); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"server", "client"} {
			if _, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestScenariosAreDistinctAndTheirBootstrapsAreJSON(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios() {
		if seen[s.name] {
			t.Errorf("two scenarios are called %q", s.name)
		}
		seen[s.name] = true
		if len(s.metrics) == 0 {
			t.Errorf("%s measures nothing", s.name)
		}
		for _, tuned := range []bool{false, true} {
			text, err := bootstrap(s.shape, side{listen: 1, admin: 2, to: "127.0.0.1", toPort: 3, tuned: tuned, secureDown: s.shape.TLS})
			if err != nil || !json.Valid(text) {
				t.Errorf("%s: %v", s.name, err)
			}
		}
	}
}

func TestOnlyOurBootstrapHasWhatAStockEnvoyLacks(t *testing.T) {
	for _, ours := range []bool{false, true} {
		text, err := bootstrap(shape{HTTP: true, Istio: true}, side{ours: ours})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(text), "istio.stats"); got != ours {
			t.Errorf("ours %v: istio.stats is there: %v", ours, got)
		}
	}
}

// cells makes samples of a scenario: rounds values of each contestant.
func cells(scenario, proxy string, values ...float64) (list []sample) {
	for round, v := range values {
		list = append(list, sample{Scenario: scenario, Proxy: proxy, Round: round, Values: map[string]float64{"cpu": v}})
	}
	return list
}

func TestTablePutsLossesFirst(t *testing.T) {
	won, lost, even, void, once := "HTTP/1.1 1 KB, 32 connections", "TCP bulk, 1 connection", "mTLS 1 KB ping-pong, 32 connections", "TCP bulk, 8 connections", "mTLS bulk up, 1 connection"
	voided := cells(void, sluice, 1, 1)
	for i := range voided {
		voided[i].Void = "steal"
	}
	rec := &record{Samples: slices.Concat(
		cells(won, sluice, 1000, 1010, 990, 1000), cells(won, envoy, 10000, 10100, 9900, 10000), cells(won, sluiceAgain, 1001, 1011, 991, 1001),
		cells(lost, sluice, 15, 15.1, 14.9, 15), cells(lost, envoy, 10, 10.1, 9.9, 10),
		cells(even, sluice, 10, 11, 9, 10), cells(even, envoy, 10, 10, 10, 10),
		voided, cells(void, envoy, 1, 1), cells(once, sluice, 1), cells(once, envoy, 2),
	)}
	got := rec.table(rec.judge())
	place := func(what string) int {
		i := strings.Index(got, "| "+what)
		if i < 0 {
			t.Fatalf("%s is missing:\n%s", what, got)
		}
		return i
	}
	if !(place(lost) < place(even) && place(even) < place(won) && place(won) < place(once) && place(void) < place(even)) {
		t.Fatalf("the order is wrong:\n%s", got)
	}
	for _, want := range []string{"Losses, failures and voids: 2", "Within noise: 1", "within it: 1", "Measured once: 1", "**0.10**", "**1.50**", "no pair counts", "against itself"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing:\n%s", want, got)
		}
	}
}

func TestBetterEnvoyColumnCounts(t *testing.T) {
	name := "HTTP/1.1 1 KB, 32 connections"
	rec := &record{Samples: slices.Concat(cells(name, sluice, 10, 10), cells(name, envoy, 40, 40), cells(name, envoyTuned, 20, 20))}
	if got := rec.table(rec.judge()); !strings.Contains(got, "**0.50**") {
		t.Fatalf("want the ratio to the tuned Envoy, 0.50:\n%s", got)
	}
}

func TestWrongAnswersAndClientBoundRowsAreSaid(t *testing.T) {
	out := sample{Values: map[string]float64{}, Load: load.Result{Units: 10, Errors: 1, Error: "wrong bytes"}}
	if err := out.figures(http1()[0]); err == nil || !strings.Contains(err.Error(), "wrong bytes") {
		t.Errorf("an error gives %v", err)
	}
	name := "HTTP/1.1 1 KB, 32 connections"
	ours := cells(name, sluice, 10, 10)
	for i := range ours {
		ours[i].Load.Conditions = stat.Conditions{Core0: .99, Client: .5}
		ours[i].Values["share"] = .5
	}
	rec := &record{Samples: slices.Concat(ours, cells(name, envoy, 40, 40))}
	if got := rec.table(rec.judge()); !strings.Contains(got, "the client is the limit") {
		t.Errorf("nothing says that the client was the limit:\n%s", got)
	}
}

func TestGateNamesDifferences(t *testing.T) {
	a, b := heads{Request: []string{"a: 1", "b: 2"}}, heads{Request: []string{"a: 1", "b: 3"}}
	want := "only sluice sends the origin `b: 2`; only Envoy sends the origin `b: 3`"
	if got := differences(a, b); got != want {
		t.Errorf("got %q", got)
	}
	if got := differences(a, a); got != "" {
		t.Errorf("a head differs from itself: %q", got)
	}
}
