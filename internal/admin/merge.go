package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// scrapeLimit bounds what one application endpoint may add to a scrape.
const scrapeLimit = 10 << 20

// AppMetrics fetches the application's own metrics for the merged page. The
// zero value has no application to ask.
type AppMetrics struct {
	urls   []string
	client http.Client
	failed func() // counts a failure
}

type scrapeAnnotations struct {
	Scrape  string `json:"scrape"`
	Path    string `json:"path"`
	Port    string `json:"port"`
	Targets []struct {
		Port string `json:"port"`
		Path string `json:"path"`
	} `json:"targets"`
}

// NewAppMetrics parses ISTIO_PROMETHEUS_ANNOTATIONS ("" gives none). Ports that
// are our own are left out, or a scrape would ask itself for ever.
func NewAppMetrics(text string, failed func()) (*AppMetrics, error) {
	m := &AppMetrics{failed: failed, client: http.Client{Timeout: 10 * time.Second}}
	if text == "" {
		return m, nil
	}
	var a scrapeAnnotations
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, fmt.Errorf("parsing ISTIO_PROMETHEUS_ANNOTATIONS: %w", err)
	}
	if a.Scrape != "" && a.Scrape != "true" {
		return m, nil
	}
	add := func(port, path string) {
		if port == "" {
			port = "80"
		}
		if path == "" {
			path = "/metrics"
		}
		if port != "15020" && port != "15090" {
			m.urls = append(m.urls, "http://localhost:"+port+"/"+strings.TrimPrefix(path, "/"))
		}
	}
	for _, t := range a.Targets {
		add(t.Port, t.Path)
	}
	if len(a.Targets) == 0 {
		add(a.Port, a.Path)
	}
	return m, nil
}

// Append writes what the application exposes to b, as text format. A failing
// application costs its own metrics and nothing else.
func (m *AppMetrics) Append(ctx context.Context, b *bytes.Buffer, in http.Header) {
	for _, url := range m.urls {
		text, err := m.fetch(ctx, url, in)
		if err != nil {
			m.failed()
			continue
		}
		// "# EOF" ends an OpenMetrics page; in the middle of a merged one it
		// would cut the rest off.
		text = bytes.TrimSuffix(bytes.TrimRight(text, "\n"), []byte("# EOF"))
		b.Write(text)
		if n := len(text); n > 0 && text[n-1] != '\n' {
			b.WriteByte('\n')
		}
	}
}

func (m *AppMetrics) fetch(ctx context.Context, url string, in http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("scraping the application: %w", err)
	}
	for _, h := range []string{"X-Prometheus-Scrape-Timeout-Seconds", "User-Agent"} {
		if v := in.Get(h); v != "" {
			req.Header.Set(h, v)
		}
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	res, err := m.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("scraping the application: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scraping the application: %s answered %s", url, res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, scrapeLimit+1))
	if err == nil && len(text) > scrapeLimit {
		err = fmt.Errorf("%s gave more than %d bytes", url, scrapeLimit)
	}
	return text, err
}
