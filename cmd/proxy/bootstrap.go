package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/xdsclient"
	"sluice/xdsclient/translate"
)

// serveBootstrap is `proxy -c FILE`: Envoy's command line.
func serveBootstrap(ctx context.Context, h host, f flags) error {
	text, err := readBootstrap(f)
	if err != nil {
		return err
	}
	registry := newRegistry(h)
	registry.AllowUnknown = f.allowUnknown
	boot, err := registry.Bootstrap(text)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	level, log, err := newLog(h, f.logLevel, false)
	if err != nil {
		return err
	}
	if f.mode == "validate" {
		_, err := fmt.Fprintf(h.stdout, "configuration '%s' OK\n", f.config)
		return err
	}
	if f.node != "" {
		boot.Node.ID = f.node
	}
	if f.cluster != "" {
		boot.Node.Cluster = f.cluster
	}
	var dial xdsclient.Dialer
	if boot.ADS != nil {
		if dial, err = xdsclient.ClusterDialer(&boot.Static, boot.ADS.Cluster, nil); err != nil {
			return err
		}
	}
	return run(ctx, h, settings{
		boot: boot, text: text, registry: registry, log: log, level: level, dial: dial,
		plane: planeOptions{
			workers: max(f.concurrency, 1), visibleWait: f.visibleWait, drain: time.Duration(f.drainTime) * time.Second, gradual: f.drainStrategy != "immediate",
			flush: time.Duration(f.flushMillis) * time.Millisecond, maxConns: boot.MaxConnections, node: &boot.Node, runtime: boot.Runtime,
			keep: keepStats(boot.StatsMatcher), tags: telemetry.NewTags(boot.StatsTags),
		},
		options: map[string]any{"config_path": f.config, "concurrency": f.concurrency, "log_level": f.logLevel, "drain_time": fmt.Sprintf("%ds", f.drainTime),
			"drain_strategy": capital(f.drainStrategy), "mode": capital(f.mode), "restart_epoch": 0, "local_address_ip_version": "v4"},
	})
}

// check refuses values that can't be meant.
func (f *flags) check() error {
	if f.drainStrategy != "gradual" && f.drainStrategy != "immediate" {
		return fmt.Errorf("--drain-strategy %q: must be gradual or immediate", f.drainStrategy)
	}
	for _, n := range [...]struct {
		name  string
		value int
	}{{"concurrency", f.concurrency}, {"drain-time-s", f.drainTime}, {"file-flush-interval-msec", f.flushMillis}} {
		if n.value < 0 {
			return fmt.Errorf("--%s %d: must not be negative", n.name, n.value)
		}
	}
	return nil
}

// capital writes a word as Envoy's enums print.
func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// readBootstrap reads the file, and puts --config-yaml over it.
func readBootstrap(f flags) ([]byte, error) {
	if f.mode != "serve" && f.mode != "validate" {
		return nil, fmt.Errorf("--mode %q: must be serve or validate", f.mode)
	}
	if f.configYAML == "" {
		text, err := os.ReadFile(f.config)
		if err != nil {
			return nil, fmt.Errorf("reading the bootstrap: %w", err)
		}
		return text, nil
	}
	merged := map[string]any{}
	if f.config != "" {
		text, err := os.ReadFile(f.config)
		if err != nil {
			return nil, fmt.Errorf("reading the bootstrap: %w", err)
		}
		if err := yaml.Unmarshal(text, &merged); err != nil {
			return nil, fmt.Errorf("parsing %s: %w", f.config, err)
		}
	}
	over := map[string]any{}
	if err := yaml.Unmarshal([]byte(f.configYAML), &over); err != nil {
		return nil, fmt.Errorf("parsing --config-yaml: %w", err)
	}
	overlay(merged, over)
	return yaml.Marshal(merged)
}

// overlay merges as protobuf does: messages by field, lists appended.
func overlay(base, over map[string]any) {
	for k, v := range over {
		switch v := v.(type) {
		case map[string]any:
			if b, ok := base[k].(map[string]any); ok {
				overlay(b, v)
				continue
			}
		case []any:
			if b, ok := base[k].([]any); ok {
				base[k] = append(b, v...)
				continue
			}
		}
		base[k] = v
	}
}

func newLog(h host, level string, asJSON bool) (*slog.LevelVar, *slog.Logger, error) {
	l, err := admin.ParseLevel(level)
	if err != nil {
		return nil, nil, err
	}
	v := &slog.LevelVar{}
	v.Set(l)
	o := &slog.HandlerOptions{Level: v}
	if asJSON {
		return v, slog.New(slog.NewJSONHandler(h.stderr, o)), nil
	}
	return v, slog.New(slog.NewTextHandler(h.stderr, o)), nil
}

// warner writes what a part of the control path has to tell, which is trouble only.
func warner(log *slog.Logger) func(string, ...any) {
	return func(format string, args ...any) { log.Warn(fmt.Sprintf(format, args...)) }
}

// keepStats says which clusters have statistics of their own, by the bootstrap's
// matcher. Istio's leaves nearly all out, which is where Envoy's memory goes.
func keepStats(m *config.StatsMatcher) func(string) bool {
	if m == nil {
		return nil
	}
	if m.RejectAll {
		return func(string) bool { return false }
	}
	return func(cluster string) bool {
		name := "cluster." + cluster + ".upstream_rq_total"
		for i := range m.Patterns {
			if m.Patterns[i].Match(name) {
				return m.Include
			}
		}
		return !m.Include
	}
}

// newRegistry translates with this process's environment at hand.
func newRegistry(h host) *translate.Registry {
	r := translate.Default()
	r.Env = h.lookup
	return r
}
