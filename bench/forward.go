package main

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// forward is the bare forwarder: one epoll loop, one upstream connection for
// each accepted one, read and write and nothing else. What it costs is what the
// kernel costs; it is the floor under every row.
func forward(ctx context.Context, listen, to string) error {
	f := &forwarder{peer: map[int32]int32{}, buf: make([]byte, 256<<10)}
	if err := f.open(listen, to); err != nil {
		return fmt.Errorf("starting the bare forwarder: %w", err)
	}
	events := make([]unix.EpollEvent, 256)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(f.ep, events, 100)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("waiting for events: %w", err)
		}
		for i := range max(n, 0) {
			if fd := events[i].Fd; fd == int32(f.listen) {
				f.accept()
			} else {
				f.relay(fd)
			}
		}
	}
	return nil
}

type forwarder struct {
	ep, listen int
	up         unix.SockaddrInet4
	peer       map[int32]int32
	buf        []byte
}

func sockaddr(address string) (unix.SockaddrInet4, error) {
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return unix.SockaddrInet4{}, err
	}
	return unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}, nil
}

func (f *forwarder) open(listen, to string) (err error) {
	if f.up, err = sockaddr(to); err != nil {
		return err
	}
	local, err := sockaddr(listen)
	if err != nil {
		return err
	}
	if f.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if f.listen, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0); err != nil {
		return err
	}
	if err = unix.SetsockoptInt(f.listen, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err = unix.Bind(f.listen, &local); err != nil {
		return err
	}
	if err = unix.Listen(f.listen, 1024); err != nil {
		return err
	}
	return f.watch(f.listen)
}

func (f *forwarder) watch(fd int) error {
	return unix.EpollCtl(f.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// accept connects with a blocking socket: on loopback that takes no time, and
// the forwarder stays as small as its name says.
func (f *forwarder) accept() {
	in, _, err := unix.Accept4(f.listen, unix.SOCK_CLOEXEC)
	if err != nil {
		return
	}
	out, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(out, &f.up)
	}
	if err != nil {
		unix.Close(in)
		unix.Close(out)
		return
	}
	f.peer[int32(in)], f.peer[int32(out)] = int32(out), int32(in)
	for _, fd := range []int{in, out} {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		_ = f.watch(fd)
	}
}

func (f *forwarder) relay(fd int32) {
	to, ok := f.peer[fd]
	if !ok {
		return
	}
	n, err := unix.Read(int(fd), f.buf)
	if n > 0 {
		for b := f.buf[:n]; len(b) > 0 && err == nil; {
			n, err = unix.Write(int(to), b)
			b = b[max(n, 0):]
		}
	}
	if n <= 0 || err != nil {
		delete(f.peer, fd)
		delete(f.peer, to)
		unix.Close(int(fd))
		unix.Close(int(to))
	}
}
