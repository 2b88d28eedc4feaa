package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"sluice/internal/telemetry"
)

func (a *Admin) prometheus(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", textFormat)
	_ = WritePrometheus(r.Context(), w, a.Metrics)
}

// WritePrometheus writes all metrics in Prometheus' text format.
func WritePrometheus(ctx context.Context, w io.Writer, r *telemetry.Registry) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(&collector{r.Gather(ctx)}); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	families, err := registry.Gather()
	// A family that can't be gathered costs itself: the rest is written.
	e := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := e.Encode(f); err != nil {
			return fmt.Errorf("writing %s: %w", f.GetName(), err)
		}
	}
	return err
}

// collector gives one scrape's values to the exposition library. It describes
// nothing beforehand: label sets come with the traffic.
type collector struct{ metrics []telemetry.Metric }

func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	for i := range c.metrics {
		m := &c.metrics[i]
		if m.Prom == "" {
			continue
		}
		names, values := make([]string, len(m.Labels)), make([]string, len(m.Labels))
		for i, l := range m.Labels {
			names[i], values[i] = l.Name, l.Value
		}
		desc := prometheus.NewDesc(m.Prom, m.Prom, names, nil)
		metric, err := constMetric(desc, m, values)
		if err != nil {
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		out <- metric
	}
}

func constMetric(desc *prometheus.Desc, m *telemetry.Metric, values []string) (prometheus.Metric, error) {
	switch m.Kind {
	case telemetry.Histogram:
		buckets := make(map[float64]uint64, len(m.Buckets))
		for i, bound := range telemetry.Bounds() {
			if i < len(m.Buckets) {
				buckets[bound] = m.Buckets[i]
			}
		}
		return prometheus.NewConstHistogram(desc, m.Value, m.Sum, buckets, values...)
	case telemetry.Gauge:
		return prometheus.NewConstMetric(desc, prometheus.GaugeValue, float64(m.Value), values...)
	}
	return prometheus.NewConstMetric(desc, prometheus.CounterValue, float64(m.Value), values...)
}
