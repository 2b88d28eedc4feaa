package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"sluice/internal/telemetry"
)

// State is what a proxy's life is in, with Envoy's names and numbers.
type State int32

// The states, as server.state reports them.
const (
	Live State = iota
	Draining
	PreInitializing
	Initializing
)

func (s State) String() string {
	return [...]string{"LIVE", "DRAINING", "PRE_INITIALIZING", "INITIALIZING"}[s]
}

// Admin serves the administration pages, on 127.0.0.1:15000 in a pod. Every
// member but those said to be optional must be set before Handler is called.
type Admin struct {
	Version string
	Began   time.Time
	State   func() State
	Metrics *telemetry.Registry
	// Clusters, Listeners, Certs, InitDump and Runtime write a page each, text or JSON as the
	// query asks; ConfigDump answers the query of one.
	Clusters   func(ctx context.Context, w io.Writer, q url.Values) error
	Listeners  func(ctx context.Context, w io.Writer, q url.Values) error
	ConfigDump func(ctx context.Context, q url.Values) (body []byte, status int)
	Certs      func(w io.Writer) error
	InitDump   func(w io.Writer) error
	Runtime    func(w io.Writer) error
	// Options are the command line's, for server_info; Node is the node as JSON.
	Options map[string]any
	Node    json.RawMessage
	Logging *Logging
	// Drain stops inbound listeners, or all: at once, or gracefully after the drain
	// time, or with skipExit never.
	Drain func(inboundOnly, graceful, skipExit bool)
	Quit  func()
	// ReopenLogs opens the access logs anew, after a rotation.
	ReopenLogs func() error

	failed atomic.Bool // healthcheck/fail
}

type page struct {
	path, help string
	post       bool // changes something
	serve      http.HandlerFunc
}

// HealthFailed reports whether healthcheck/fail is in force.
func (a *Admin) HealthFailed() bool { return a.failed.Load() }

// state is the state that is shown: a failed health check is a drain.
func (a *Admin) state() State {
	if s := a.State(); s != Live || !a.HealthFailed() {
		return s
	}
	return Draining
}

// Handler serves the pages.
func (a *Admin) Handler() http.Handler {
	pages := a.pages()
	mux := http.NewServeMux()
	for _, p := range pages {
		serve := p.serve
		if p.post {
			serve = postOnly(p.serve)
		}
		mux.HandleFunc(p.path, serve)
	}
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { a.index(w, pages) })
	mux.HandleFunc("/help", func(w http.ResponseWriter, _ *http.Request) { help(w, pages) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", plainText)
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "invalid path. ")
		help(w, pages)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-cache, max-age=0")
		h.Set("Server", "envoy") // tools tell the proxy by it
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Type", plainText)
		h.Set("Transfer-Encoding", "chunked")
		if r.Method == http.MethodHead {
			h["transfer-encoding"] = []string{"chunked"} // net/http drops the usual spelling from what has no body
		}
		mux.ServeHTTP(w, r)
	})
}

const plainText = "text/plain; charset=UTF-8"

// refuse answers an error in plain text, without a line's end of its own.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", plainText)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func (a *Admin) pages() []page {
	return []page{
		{"/certs", "print certificates", false, a.writes(func(_ context.Context, w io.Writer, _ *http.Request) error { return a.Certs(w) }, true)},
		{"/clusters", "upstream cluster status", false, a.either(a.Clusters)},
		{"/config_dump", "dump current configuration", false, a.configDump},
		{"/cpuprofiler", "enable or disable the CPU profiler", true, noProfiler},
		{"/drain_listeners", "drain listeners", true, a.drain},
		{"/healthcheck/fail", "cause the server to fail health checks", true, a.health(true)},
		{"/healthcheck/ok", "cause the server to pass health checks", true, a.health(false)},
		{"/heapprofiler", "enable or disable the heap profiler", true, noProfiler},
		{"/hot_restart_version", "print the hot restart compatibility version", false, a.writes(func(_ context.Context, w io.Writer, _ *http.Request) error {
			_, err := io.WriteString(w, "disabled")
			return err
		}, false)},
		{"/init_dump", "dump what the server still waits for", false, a.writes(func(_ context.Context, w io.Writer, _ *http.Request) error { return a.InitDump(w) }, true)},
		{"/listeners", "print listener info", false, a.either(a.Listeners)},
		{"/logging", "query or change logging levels", true, a.Logging.serve},
		{"/memory", "print current memory use", false, a.writes(memory, true)},
		{"/quitquitquit", "exit the server", true, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "OK\n")
			a.Quit()
		}},
		{"/ready", "print server state, return 200 if LIVE, otherwise 503", false, a.ready},
		{"/reopen_logs", "reopen access logs", true, a.writes(func(_ context.Context, w io.Writer, _ *http.Request) error {
			if err := a.ReopenLogs(); err != nil {
				return err
			}
			_, err := io.WriteString(w, "OK\n")
			return err
		}, false)},
		{"/reset_counters", "reset all counters to zero", true, a.resetCounters},
		{"/runtime", "print runtime values", false, a.writes(func(_ context.Context, w io.Writer, _ *http.Request) error { return a.Runtime(w) }, true)},
		{"/runtime_modify", "add or change runtime values", true, modifyRuntime},
		{"/server_info", "print server version and status", false, a.serverInfo},
		{"/stats", "print server stats", false, a.stats},
		{"/stats/prometheus", "print server stats in Prometheus format", false, a.prometheus},
	}
}

// noProfiler answers where Envoy's profilers would be.
func noProfiler(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusNotImplemented, "Profiles are at /debug/pprof/ of the status port.\n")
}

// modifyRuntime changes nothing, since no admin layer is supported: values come
// from static layers only.
func modifyRuntime(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery == "" {
		refuse(w, http.StatusBadRequest, "usage: /runtime_modify?key1=value1&key2=value2&keyN=valueN\n"+
			"       or send the parameters as form values\nuse an empty value to remove a previously added override")
		return
	}
	refuse(w, http.StatusServiceUnavailable, "No admin layer specified")
}

func postOnly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			refuse(w, http.StatusMethodNotAllowed, fmt.Sprintf("Method %s not allowed, POST required.", r.Method))
			return
		}
		h(w, r)
	}
}

func (a *Admin) writes(f func(context.Context, io.Writer, *http.Request) error, isJSON bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if isJSON {
			w.Header().Set("Content-Type", "application/json")
		}
		if err := f(r.Context(), w, r); err != nil {
			refuse(w, http.StatusInternalServerError, err.Error())
		}
	}
}

func (a *Admin) either(f func(context.Context, io.Writer, url.Values) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := query(r)
		a.writes(func(ctx context.Context, w io.Writer, _ *http.Request) error { return f(ctx, w, q) }, q.Get("format") == "json")(w, r)
	}
}

func (a *Admin) ready(w http.ResponseWriter, _ *http.Request) {
	s := a.state()
	if s != Live {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, s)
}

func (a *Admin) health(failed bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		a.failed.Store(failed)
		_, _ = io.WriteString(w, "OK\n")
	}
}

func (a *Admin) drain(w http.ResponseWriter, r *http.Request) {
	q := query(r)
	a.Drain(q.Has("inboundonly"), q.Has("graceful"), q.Has("skip_exit"))
	_, _ = io.WriteString(w, "OK\n")
}

func (a *Admin) configDump(w http.ResponseWriter, r *http.Request) {
	body, status := a.ConfigDump(r.Context(), query(r))
	if status == http.StatusOK {
		w.Header().Set("Content-Type", "application/json")
	} else {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Add("X-Content-Type-Options", "nosniff") // twice, as Envoy sends it
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (a *Admin) serverInfo(w http.ResponseWriter, _ *http.Request) {
	up := strconv.FormatInt(int64(time.Since(a.Began).Seconds()), 10) + "s"
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	_ = e.Encode(map[string]any{
		"version": a.Version, "state": a.state().String(), "uptime_current_epoch": up, "uptime_all_epochs": up, "hot_restart_version": "disabled",
		"command_line_options": a.Options, "node": a.Node,
	})
}

// memory has Envoy's names; the numbers are the Go runtime's.
func memory(_ context.Context, w io.Writer, _ *http.Request) error {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	text := func(n uint64) string { return strconv.FormatUint(n, 10) }
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(struct {
		Allocated string `json:"allocated"`
		Heap      string `json:"heap_size"`
		Unmapped  string `json:"pageheap_unmapped"`
		Free      string `json:"pageheap_free"`
		Cache     string `json:"total_thread_cache"`
		Physical  string `json:"total_physical_bytes"`
	}{text(m.HeapAlloc), text(m.HeapSys), text(m.HeapReleased), text(m.HeapIdle - m.HeapReleased), text(m.MCacheInuse), text(m.Sys - m.HeapReleased)})
}

func help(w io.Writer, pages []page) {
	_, _ = io.WriteString(w, "admin commands are:\n  /: Admin home page\n")
	for _, p := range pages {
		fmt.Fprintf(w, "  %s%s: %s\n", p.path, map[bool]string{true: " (POST)"}[p.post], p.help)
	}
}

// index is for people: what state the proxy is in, and where to look.
func (a *Admin) index(w http.ResponseWriter, pages []page) {
	w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	fmt.Fprintf(w, `<!doctype html><title>sluice</title><style>body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}
td{padding:.15rem 1rem .15rem 0;vertical-align:top}form{display:inline}button{font:inherit}</style>
<h1>%s</h1>
<p>State <b>%s</b>, up %s.</p>
<table>
`, html.EscapeString(a.Version), a.state(), time.Since(a.Began).Round(time.Second))
	for _, p := range pages {
		link := fmt.Sprintf(`<a href="%[1]s">%[1]s</a>`, p.path)
		if p.post {
			link = fmt.Sprintf(`<form method="post" action="%[1]s"><button>%[1]s</button></form>`, p.path)
		}
		fmt.Fprintf(w, "<tr><td>%s<td>%s\n", link, html.EscapeString(p.help))
	}
	_, _ = io.WriteString(w, "</table>\n")
}
