package admin

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
)

// Status is the agent's half of the pod's face: port 15020 (probes, merged
// metrics, drain, quit). Ports 15021 and 15090 are listeners of the bootstrap
// that lead here and to the admin port.
type Status struct {
	Ready *Readiness
	// Metrics writes the proxy's own metrics in Prometheus text format.
	Metrics func(w io.Writer, query string) error
	App     *AppMetrics
	Probes  *Probes
	// Drain starts draining inbound listeners; Quit ends the process.
	Drain, Quit func()
	// Identity says whether there is a certificate, and what is in its way.
	Identity func() (ok bool, problem string)
	// NameTable gives the DNS table as JSON, nil when there is none.
	NameTable func() []byte
}

// Handler serves port 15020.
func (s *Status) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz/ready", s.ready)
	mux.HandleFunc("/stats/prometheus", s.merged)
	mux.HandleFunc("/metrics", s.merged)
	mux.Handle("/app-health/", s.Probes)
	mux.Handle("/app-lifecycle/", s.Probes)
	mux.HandleFunc("/quitquitquit", s.localPost(s.Quit))
	mux.HandleFunc("/drain", s.localPost(s.Drain))
	mux.HandleFunc("/debug/ndsz", s.ndsz)
	for path, h := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.HandleFunc("/debug/pprof/"+path, local(h))
	}
	return mux
}

const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// ready answers the kubelet. The body of a refusal is for people: pilot-agent
// sends none, and no tool reads it.
func (s *Status) ready(w http.ResponseWriter, _ *http.Request) {
	if have, problem := s.Identity(); have {
		s.Ready.Done("identity")
	} else {
		s.Ready.Because("identity", problem)
	}
	ok, why := s.Ready.Ready()
	if !ok {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Status) merged(w http.ResponseWriter, req *http.Request) {
	var b bytes.Buffer
	_ = s.Metrics(&b, req.URL.RawQuery)
	s.App.Append(req.Context(), &b, req.Header)
	w.Header().Set("Content-Type", textFormat)
	_, _ = w.Write(b.Bytes())
}

func (s *Status) ndsz(w http.ResponseWriter, req *http.Request) {
	local(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		table := s.NameTable()
		if table == nil {
			w.WriteHeader(http.StatusNotFound)
			table = []byte("{}\n")
		}
		_, _ = w.Write(table)
	})(w, req)
}

// isLocal reports whether a request came over loopback.
func isLocal(req *http.Request) bool {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	return err == nil && net.ParseIP(host).IsLoopback()
}

func local(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if !isLocal(req) {
			http.Error(w, "only requests from localhost are allowed", http.StatusForbidden)
			return
		}
		h(w, req)
	}
}

func (s *Status) localPost(do func()) http.HandlerFunc {
	return local(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			http.Error(w, "use POST", http.StatusMethodNotAllowed)
			return
		}
		_, _ = io.WriteString(w, "OK")
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		do()
	})
}
