package redirect

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func tcpSocket() (int, error) {
	return unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
}

func closeSocket(fd int) { unix.Close(fd) }

func wantMark(fd, want int) error {
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK)
	if err == nil && got != want {
		err = fmt.Errorf("mark is %d, want %d", got, want)
	}
	return err
}
