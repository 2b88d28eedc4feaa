package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"sluice/bench/load"
)

// goProxy is what one writes with the standard library: ReverseProxy for HTTP
// (h1, h2), io.Copy for TCP, crypto/tls before either. Its transport may keep as
// many idle connections as the load has; the default of two would lose for a
// reason that is no news.
func goProxy(ctx context.Context, kind, listen, to, certs string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	if certs != "" {
		conf, err := serverTLS(certs)
		if err != nil {
			return err
		}
		l = tls.NewListener(l, conf)
	}
	if kind == "tcp" {
		return copyTCP(ctx, l, to)
	}
	var clear http.Protocols
	clear.SetHTTP1(kind == "h1")
	clear.SetUnencryptedHTTP2(kind == "h2")
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	p.Transport = &http.Transport{Protocols: &clear, MaxIdleConnsPerHost: 1024, MaxIdleConns: 4096, DisableCompression: true}
	p.FlushInterval = -1
	p.ErrorLog = log.New(os.Stderr, "", 0)
	s := &http.Server{Handler: p, Protocols: &clear, ReadHeaderTimeout: 30 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return s.Serve(l)
}

func serverTLS(dir string) (*tls.Config, error) {
	cert, roots, err := load.Certificate(dir, "server")
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}, nil
}

func copyTCP(ctx context.Context, l net.Listener, to string) error {
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		in, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		go func() { // ends with its connection; the process with ctx
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() { // ends when out does
				_, _ = io.Copy(in, out)
				in.Close()
			}()
			_, _ = io.Copy(out, in)
		}()
	}
}
