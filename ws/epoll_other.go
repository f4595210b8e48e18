//go:build !linux

package ws

import "net"

// poller does not exist on this system: a goroutine reads each connection.
type poller struct{}

func (h *Hub) newPoller() *poller           { return nil }
func (p *poller) take(*Conn, net.Conn) bool { return false }
func (p *poller) forget(*Conn)              {}
func (p *poller) close()                    {}

// unsent cannot tell on this system whether the peer has taken all that was written.
func unsent(netConn) bool { return false }
