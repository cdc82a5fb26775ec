package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v3"
)

// standard is the argument that stands for standard input or output.
const standard = "-"

// readInput calls read with the file that the argument names, or with standard input if there is no
// argument or it is standard.
func readInput(cmd *cli.Command, args []string, read func(io.Reader) error) error {
	if len(args) == 0 || args[0] == standard {
		return read(cmd.Root().Reader)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return fmt.Errorf("read the input: %w", err)
	}
	return errors.Join(read(f), f.Close())
}
