package main

import "github.com/urfave/cli/v3"

func sessionCommand() *cli.Command {
	return &cli.Command{
		Name:     "session",
		Category: atServer,
		Usage:    "look at sessions, and end them",
		Action:   noCommand,
		Commands: []*cli.Command{
			sessionListCommand(),
			sessionInfoCommand(),
			sessionDestroyCommand(),
		},
	}
}
