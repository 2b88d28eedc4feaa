package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestRequestPrintsTheBodyAndNothingElse(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(404)
		case "/refused":
			w.WriteHeader(405)
		}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), b)
	}))
	defer s.Close()
	for _, x := range []struct{ method, path, body, want, failure string }{
		{"GET", "/a?b", "", "GET /a?b \n", ""},
		{"POST", "/logging", "x", "POST /logging x\n", ""},
		{"GET", "/missing", "", "GET /missing \n", ""},
		{"GET", "/refused", "", "", "received unsuccessful status code 405"},
	} {
		var out bytes.Buffer
		err := request(t.Context(), &out, x.method, s.URL+x.path, x.body)
		if out.String() != x.want || (err == nil) != (x.failure == "") || err != nil && !strings.Contains(err.Error(), x.failure) {
			t.Errorf("%s %s: %q, %v", x.method, x.path, out.String(), err)
		}
	}
	c := requestCommand()
	c.SetArgs([]string{"--debug-port", "80", "GET", "/"})
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "must be one of") {
		t.Errorf("any port may be asked: %v", err)
	}
}

func TestWaitEndsWhenReady(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			http.Error(w, "waiting for configuration", http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	began := time.Now()
	if err := waitReady(t.Context(), s.URL, 20*time.Millisecond, time.Second); err != nil || asked.Load() != 3 || time.Since(began) < 60*time.Millisecond {
		t.Errorf("%v after %d requests; it asks first after a period", err, asked.Load())
	}
	asked.Store(-1000)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := waitReady(ctx, s.URL, 20*time.Millisecond, time.Second); err == nil || !strings.Contains(err.Error(), "waiting for configuration") {
		t.Errorf("a proxy that doesn't get ready: %v, want its reason", err)
	}
}

func TestOverlayMergesAsProtobufDoes(t *testing.T) {
	base := map[string]any{"a": map[string]any{"x": 1, "l": []any{1}}, "s": "old"}
	overlay(base, map[string]any{"a": map[string]any{"y": 2, "l": []any{2}}, "s": "new"})
	if got := fmt.Sprint(base); got != "map[a:map[l:[1 2] x:1 y:2] s:new]" {
		t.Error(got)
	}
}
