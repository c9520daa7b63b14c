# A hash of strings and arrays that is filled, changed and read at random, with garbage beside it.
random = Random.new(7)
rows = {}
400_000.times { |n| rows["key#{n}"] = ["v" * (50 + n % 100), n] }
20_000.times do |n|
  key = "key#{random.rand(400_000)}"
  random.rand(4).zero? ? rows.delete(key) : (rows[key] ||= ["", n])[0] += "-#{n}"
end
GC.start
sum = rows.sum { |key, (text, n)| text.sum + n + key.size }
sorted = rows.keys.sort_by { |key| rows[key][1] * 7919 % 400_009 }
puts "#{rows.size} #{sum} #{sorted[1000]} #{sorted[-1000]}"
