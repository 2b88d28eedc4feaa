package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// requestPorts are the ports that `request` may ask: admin, and the agent's own.
var requestPorts = []int{15000, 15004, 15020, 15021}

// requestCommand is `pilot-agent request METHOD PATH [BODY]`, which istioctl and
// lifecycle hooks exec in the pod. It prints the body and nothing else, for
// istioctl parses it.
func requestCommand() *cobra.Command {
	var port int
	c := &cobra.Command{
		Use:   "request METHOD PATH [BODY]",
		Short: "Ask the proxy's admin or status port and print the answer",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return fmt.Errorf("request takes METHOD PATH [BODY], not %d words", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(requestPorts, port) {
				return fmt.Errorf("--debug-port %d: must be one of %v", port, requestPorts)
			}
			body := strings.Join(args[2:], "")
			return request(c.Context(), c.OutOrStdout(), args[0], "http://localhost:"+strconv.Itoa(port)+"/"+strings.TrimPrefix(args[1], "/"), body)
		},
	}
	c.Flags().IntVar(&port, "debug-port", 15000, "port to ask: 15000 (admin), 15020 or 15021 (status)")
	return c
}

func request(ctx context.Context, out io.Writer, method, url, body string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("building the request: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking the proxy: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if res.StatusCode > 399 && res.StatusCode != http.StatusNotFound {
		return fmt.Errorf("received unsuccessful status code %d: %s", res.StatusCode, text)
	}
	_, err = fmt.Fprintln(out, string(text))
	return err
}

// waitCommand is `pilot-agent wait`, the postStart hook that holds the
// application until the proxy is ready.
func waitCommand() *cobra.Command {
	var timeout, period, attempt int
	var url string
	c := &cobra.Command{
		Use:   "wait",
		Short: "Wait until the proxy is ready",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), time.Duration(timeout)*time.Second)
			defer cancel()
			return waitReady(ctx, url, time.Duration(period)*time.Millisecond, time.Duration(attempt)*time.Millisecond)
		},
	}
	c.Flags().IntVar(&timeout, "timeoutSeconds", 60, "seconds to wait in all")
	c.Flags().IntVar(&attempt, "requestTimeoutMillis", 500, "milliseconds for one request")
	c.Flags().IntVar(&period, "periodMillis", 500, "milliseconds between requests")
	c.Flags().StringVar(&url, "url", "http://localhost:15021/healthz/ready", "what to ask")
	return c
}

func waitReady(ctx context.Context, url string, period, attempt time.Duration) error {
	var last error
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("timeout waiting for the proxy to be ready at %s: last attempt: %w", url, last)
		case <-tick.C:
		}
		err := askReady(ctx, url, attempt)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // the end of the wait is no reason
			last = err
		}
	}
}

func askReady(ctx context.Context, url string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(res.Body, 1024))
		return fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(why)))
	}
	return nil
}
