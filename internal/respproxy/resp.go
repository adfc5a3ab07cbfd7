package respproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

var errNotRESP = errors.New("not RESP")

// readCommand reads a command and returns its words and its bytes.
func readCommand(r *bufio.Reader) (args []string, raw []byte, err error) {
	head, err := readLine(r, nil)
	if err != nil {
		return nil, nil, err
	}
	n, err := length(head, '*')
	if err != nil || n < 1 {
		return nil, nil, fmt.Errorf("command begins with %q: %w", head, errNotRESP)
	}
	raw = head
	for range n {
		start := len(raw)
		if raw, err = readLine(r, raw); err != nil {
			return nil, nil, err
		}
		size, err := length(raw[start:], '$')
		if err != nil || size < 0 {
			return nil, nil, fmt.Errorf("word begins with %q: %w", raw[start:], errNotRESP)
		}
		start = len(raw)
		if raw, err = readN(r, raw, size+2); err != nil {
			return nil, nil, err
		}
		args = append(args, string(raw[start:start+size]))
	}
	return args, raw, nil
}

// readReply reads the reply to a command, together with what was pushed before
// it, and returns its bytes.
func readReply(r *bufio.Reader) ([]byte, error) {
	var raw []byte
	for {
		start := len(raw)
		var err error
		if raw, err = readValue(r, raw); err != nil {
			return nil, err
		}
		if t := raw[start]; t != '>' && t != '|' {
			return raw, nil
		}
	}
}

// readValue appends the bytes of a value to raw.
func readValue(r *bufio.Reader, raw []byte) ([]byte, error) {
	start := len(raw)
	raw, err := readLine(r, raw)
	if err != nil {
		return nil, err
	}
	head := raw[start:]
	kind := head[0]
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return raw, nil
	case '$', '=', '!':
		n, err := length(head, kind)
		if err != nil || n < 0 {
			return raw, err
		}
		return readN(r, raw, n+2)
	case '*', '~', '>', '%', '|':
		n, err := length(head, kind)
		if err != nil {
			return nil, err
		}
		if kind == '%' || kind == '|' {
			n *= 2
		}
		for range n { // none if n is -1, a nil array
			if raw, err = readValue(r, raw); err != nil {
				return nil, err
			}
		}
		return raw, nil
	default:
		return nil, fmt.Errorf("reply begins with %q: %w", head, errNotRESP)
	}
}

// length returns the number in a line that begins with kind.
func length(line []byte, kind byte) (int, error) {
	if line[0] != kind {
		return 0, errNotRESP
	}
	return strconv.Atoi(string(line[1 : len(line)-2]))
}

// readLine appends a line of at least one character and its end to raw.
func readLine(r *bufio.Reader, raw []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, errNotRESP
	}
	return append(raw, line...), nil
}

// readN appends n bytes to raw.
func readN(r *bufio.Reader, raw []byte, n int) ([]byte, error) {
	start := len(raw)
	raw = append(raw, make([]byte, n)...)
	_, err := io.ReadFull(r, raw[start:])
	return raw, err
}
