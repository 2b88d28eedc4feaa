package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
)

// Logging is the logging page over one level: sluice has a single logger, and
// answers to Envoy's names for its parts, which tools insist on.
type Logging struct{ Level *slog.LevelVar }

// loggers are the names istioctl offers.
func loggers() []string {
	return []string{"admin", "client", "config", "connection", "conn_handler", "dns", "file", "filter", "forward_proxy", "grpc", "health_checker", "http", "http2",
		"init", "io", "jwt", "main", "misc", "pool", "rbac", "router", "runtime", "secret", "stats", "tcp", "tracing", "upstream"}
}

// ParseLevel maps Envoy's level names to slog's.
func ParseLevel(name string) (slog.Level, error) {
	switch name {
	case "trace":
		return slog.LevelDebug - 4, nil
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warning", "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	case "critical":
		return slog.LevelError + 4, nil
	case "off", "none":
		return slog.LevelError + 8, nil
	}
	return 0, fmt.Errorf("unknown log level %q: trace, debug, info, warning, error, critical or off", name)
}

func levelName(l slog.Level) string {
	for _, n := range []string{"trace", "debug", "info", "warning", "error", "critical"} {
		if v, err := ParseLevel(n); err == nil && l <= v {
			return n
		}
	}
	return "off"
}

func (l *Logging) serve(w http.ResponseWriter, r *http.Request) {
	for name, values := range query(r) {
		value := values[0]
		if name == "paths" {
			for pair := range strings.SplitSeq(value, ",") {
				if _, value, ok := strings.Cut(pair, ":"); !ok || !l.set(w, value) {
					return
				}
			}
			continue
		}
		if name != "level" && !slices.Contains(loggers(), name) {
			http.Error(w, "error: unknown logger name "+name, http.StatusBadRequest)
			return
		}
		if !l.set(w, value) {
			return
		}
	}
	fmt.Fprintln(w, "active loggers:")
	for _, n := range loggers() {
		fmt.Fprintf(w, "  %s: %s\n", n, levelName(l.Level.Level()))
	}
}

func (l *Logging) set(w http.ResponseWriter, value string) bool {
	v, err := ParseLevel(value)
	if err != nil {
		http.Error(w, "error: "+err.Error(), http.StatusBadRequest)
		return false
	}
	l.Level.Set(v)
	return true
}
