package admin_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/internal/admin"
)

func TestMergeTakesEachTargetOnce(t *testing.T) {
	var header http.Header
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		fmt.Fprintf(w, "at%s 1\n# EOF\n", strings.ReplaceAll(r.URL.Path, "/", "_"))
	}))
	defer good.Close()
	big := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 11<<20)) }))
	defer big.Close()
	failed := 0
	m, err := admin.NewAppMetrics(`{"scrape":"true","targets":[{"port":"`+port(good.URL)+`","path":"/a"},{"port":"1"},{"port":"`+port(big.URL)+`"},{"port":"15020"},{"port":"`+
		port(good.URL)+`"}]}`, func() { failed++ })
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	m.Append(t.Context(), &b, http.Header{"X-Prometheus-Scrape-Timeout-Seconds": {"5"}, "Accept": {"application/vnd.google.protobuf"}})
	if got := b.String(); got != "at_a 1\nat_metrics 1\n" || failed != 2 {
		t.Errorf("%q, %d failures; want both pages of the good one without # EOF, and the closed and the big one failed", got, failed)
	}
	if header.Get("X-Prometheus-Scrape-Timeout-Seconds") != "5" || strings.Contains(header.Get("Accept"), "protobuf") {
		t.Errorf("the application was asked with %v", header)
	}
}

func TestNoScrapeNoMerge(t *testing.T) {
	for _, text := range []string{"", `{"scrape":"false","port":"1"}`} {
		m, err := admin.NewAppMetrics(text, func() { t.Error("asked") })
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		m.Append(t.Context(), &b, nil)
		if b.Len() > 0 {
			t.Errorf("%s: %q", text, b.String())
		}
	}
	if _, err := admin.NewAppMetrics("{", nil); err == nil {
		t.Error("broken annotations are taken")
	}
}
