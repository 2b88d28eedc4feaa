package main

import (
	"context"
	"fmt"
	"io"
	"net"
)

// backend serves until ctx ends. It prints its address first.
func backend(ctx context.Context, kind, listen string, size int) error {
	serve := map[string]func(net.Conn) error{
		"h1":   func(c net.Conn) error { return serveH1(c, size) },
		"h2":   func(c net.Conn) error { return serveH2(c, size, false) },
		"grpc": func(c net.Conn) error { return serveH2(c, size, true) },
		"echo": echo,
		"source": func(c net.Conn) error {
			for b := make([]byte, 256<<10); ; {
				if _, err := c.Write(b); err != nil {
					return err
				}
			}
		},
	}[kind]
	if serve == nil {
		return fmt.Errorf("unknown backend %q", kind)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening for the backend: %w", err)
	}
	context.AfterFunc(ctx, func() { l.Close() })
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		go func() { // ends with its connection; the process with ctx
			defer c.Close()
			_ = serve(c)
		}()
	}
}

func echo(c net.Conn) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return err
		}
	}
}
