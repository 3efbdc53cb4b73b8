#!/usr/bin/env ruby
puts STDIN.each_line.map { |l| l[/app\/\S+/] }.compact.tally.sort_by { |_, n| -n }.first(10).map { |f, n| "#{n} #{f}" }
