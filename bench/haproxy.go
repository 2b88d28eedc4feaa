package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// haproxyConfig is a shape in haproxy's language: one thread, reused upstream
// connections, a request id and x-forwarded-for where requests are told apart.
func haproxyConfig(s shape, at side, dir string) (string, error) {
	mode, bind, server := "tcp", fmt.Sprintf("bind *:%d", at.listen), fmt.Sprintf("server o %s:%d", at.to, at.toPort)
	extra := ""
	if s.HTTP {
		mode = "http"
		extra = " http-reuse always\n option forwardfor\n unique-id-format %[uuid()]\n unique-id-header x-request-id\n"
		if s.H2 {
			bind, server = bind+" proto h2", server+" proto h2"
		}
	}
	if at.secureDown {
		pair, err := joined(filepath.Join(dir, at.certs))
		if err != nil {
			return "", err
		}
		bind += fmt.Sprintf(" ssl crt %s ca-file %s verify required ssl-min-ver TLSv1.3 curves X25519", pair, filepath.Join(dir, at.certs, "ca.pem"))
	}
	return "global\n nbthread 1\n maxconn 7000\n tune.ssl.default-dh-param 2048\ndefaults\n timeout connect 10s\n timeout client 1h\n timeout server 1h\n" +
		" option splice-auto\nlisten bench\n mode " + mode + "\n " + bind + "\n" + extra + " " + server + "\n", nil
}

// joined writes certificate and key into one file, as haproxy wants them.
func joined(certs string) (string, error) {
	cert, err := os.ReadFile(filepath.Join(certs, "server.pem"))
	if err != nil {
		return "", err
	}
	key, err := os.ReadFile(filepath.Join(certs, "server.key"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(certs, "haproxy.pem")
	return path, os.WriteFile(path, append(cert, key...), 0o600)
}
